package watch

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Most is how many locks are shown at most. The memory is bounded by it, and by what they are.
const Most = 10_000

// Options say what to watch, and where.
type Options struct {
	View    *look.View
	Begins  string        // names of locks begin so
	Every   time.Duration // the pause between two looks
	In, Out *os.File      // the terminal
}

// Run shows the screen on the terminal until somebody presses a key to leave, or ctx ends. Then the
// terminal is as it was before. A backend that fails is asked again. The error is one of the
// terminal.
func Run(ctx context.Context, s *Screen, o Options) error {
	m := &model{Options: o, screen: s, cancel: func() {}}
	// The signals are the caller's.
	p := tea.NewProgram(m, tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, p.Quit)
	defer stop()
	_, err := p.Run()
	m.cancel()
	return err
}

// model is the program between terminal, screen and backend. One look is at work at a time.
type model struct {
	Options
	screen *Screen
	turn   int    // of looks; what belongs to an older one is dropped
	cancel func() // ends the look at work
}

// news is what a look has found.
type news struct {
	turn   int
	keys   []look.Key
	partly bool
	name   string // of one lock
	one    bool
	err    error
}

// next has a look begin, if it is still wanted.
type next struct{ turn int }

// second has the screen drawn again: it says how old it is.
type second struct{}

func wait() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return second{} }) }

// Init begins the first look.
func (m *model) Init() tea.Cmd { return tea.Batch(m.look(), wait()) }

// Update takes what has happened, and says what to do next.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.Resize(msg.Width, msg.Height)
		return m, tea.ClearScreen // a resize also mends what another program has written
	case tea.KeyPressMsg:
		name, one := m.screen.Wants()
		if m.screen.Press(msg.String()) {
			return m, tea.Quit
		}
		if now, isOne := m.screen.Wants(); now != name || isOne != one {
			return m, m.look()
		}
	case second:
		return m, wait()
	case next:
		if msg.turn == m.turn {
			return m, m.look()
		}
	case news:
		if msg.turn == m.turn {
			m.tell(msg)
			return m, tea.Tick(m.Every, func(time.Time) tea.Msg { return next{msg.turn} })
		}
	}
	return m, nil
}

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen.String())
	v.AltScreen = true
	return v
}

// tell gives the screen what was found.
func (m *model) tell(n news) {
	switch {
	case n.err != nil:
		m.screen.Fail(n.err)
	case n.one:
		m.screen.ShowOne(n.name, n.keys[0])
	default:
		m.screen.Show(n.keys, n.partly)
	}
}

// look begins a look at what the screen wants, in place of the one at work.
func (m *model) look() tea.Cmd {
	m.cancel()
	m.turn++
	m.screen.Ask()
	n := news{turn: m.turn}
	n.name, n.one = m.screen.Wants()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	return func() tea.Msg {
		defer cancel()
		if n.one {
			k, err := m.Options.View.Inspect(ctx, n.name)
			n.keys, n.err = []look.Key{k}, err
			return n
		}
		n.err = m.Options.View.List(ctx, m.Begins, func(keys []look.Key) error {
			n.keys = append(n.keys, keys[:min(len(keys), Most-len(n.keys))]...)
			if len(n.keys) == Most {
				return errMost
			}
			return nil
		})
		if n.err == errMost {
			n.err, n.partly = nil, true
		}
		return n
	}
}

// errMost ends a list of which enough is known.
var errMost = errors.New("there are more")
