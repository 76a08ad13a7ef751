package check_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/itest/history"
)

// asking returns an acquisition that was granted nothing, in milliseconds.
func asking(client string, op int, key string, from, to int64) []history.Record {
	return of(history.Record{Kind: history.Ask, Client: client, Op: op, Key: key, At: ms(from)},
		history.Record{Kind: history.Refuse, Client: client, Op: op, At: ms(to), Err: "timeout"})
}

// part makes an acquisition a part of the set, for the key.
func part(set int, key string, records []history.Record) []history.Record {
	for i := range records {
		records[i].Key = key
		if records[i].Kind == history.Ask {
			records[i].Set = set
		}
	}
	return records
}

// crowd returns one acquisition after the other. Each was asked for when the one before was
// granted, and held until the next one.
func crowd(number int, is func([]history.Record) []history.Record) (all []history.Record) {
	for i := range number {
		at := int64(1000 * i)
		all = append(all, is(hold("b", i+1, uint64(10+i), at+1, at+400, at+1300, at+1200))...)
	}
	return all
}

func TestTurns(t *testing.T) {
	alone := func(records []history.Record) []history.Record { return records }
	for _, c := range []struct {
		name    string
		records []history.Record
		want    []string
	}{
		{"a reader waits beside a reader", of(shared(hold("a", 1, 10, 1, 2, 5000, 4900)),
			shared(asking("b", 1, "k", 100, 4000))), []string{"idle"}},
		{"a reader waits beside a reader, for as long as it may take",
			of(shared(hold("a", 1, 10, 1, 2, 5000, 4900)), shared(asking("b", 1, "k", 100, 3100))),
			nil},
		{"a reader waits behind a writer that waits",
			of(shared(hold("a", 1, 10, 1, 2, 5000, 4900)), asking("c", 1, "k", 50, 3000),
				shared(asking("b", 1, "k", 100, 4000))), nil},
		{"a reader waits beside one who was downgraded",
			of(hold("a", 1, 10, 1, 2, 5000, 4900), lower(100, 110),
				shared(asking("b", 1, "k", 50, 3111))), []string{"idle"}},
		{"a reader waits beside one who was downgraded, for as long as it may take",
			of(hold("a", 1, 10, 1, 2, 5000, 4900), lower(100, 110),
				shared(asking("b", 1, "k", 50, 3110))), nil},
		{"a writer waits beside a reader", of(shared(hold("a", 1, 10, 1, 2, 5000, 4900)),
			asking("b", 1, "k", 100, 4000)), nil},
		{"a writer waits while several readers come and go",
			of(shared(hold("a", 1, 10, 1, 2, 2000, 1900)),
				shared(hold("c", 1, 11, 1, 3, 4000, 3900)), asking("b", 1, "k", 100, 4000)), nil},

		{"a writer that readers overtake",
			of(crowd(5, shared), asking("a", 1, "k", 50, 4900)), []string{"starvation"}},
		{"a reader that writers overtake",
			of(crowd(5, alone), shared(asking("a", 1, "k", 50, 4900))), []string{"starvation"}},
		{"a writer that readers overtake who came not much later",
			of(crowd(4, shared), asking("a", 1, "k", 1, 3900)), nil},
		{"a writer that readers overtake while something is broken",
			of(crowd(5, shared), asking("a", 1, "k", 50, 4900), on("n1", "", 2000, 2001)), nil},
		{"a writer that readers overtake while its process does not run",
			of(crowd(5, shared), asking("a", 1, "k", 50, 4900),
				history.Record{Kind: history.Stall, Client: "a", At: ms(100), Until: ms(4000)}),
			nil},
		{"a writer that those of its own process overtake",
			of(crowd(5, shared), asking("b", 9, "k", 50, 4900)), nil},
		{"a writer behind one of its own process",
			of(crowd(5, shared), asking("a", 1, "k", 40, 200), asking("a", 2, "k", 50, 4900)), nil},
		{"a writer after one of its own process",
			of(crowd(5, shared), asking("a", 1, "k", 30, 40), asking("a", 2, "k", 50, 4900)),
			[]string{"starvation"}},

		{"a writer that one overtakes who has the key from its own process",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), hold("b", 1, 10, 40, 4601, 6000, 4650),
				hold("b", 2, 11, 4000, 4651, 6000, 4800), asking("a", 1, "k", 50, 4900)), nil},
		{"a writer that a reader overtakes who has the key with one of its own process",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), shared(hold("b", 1, 11, 40, 4602, 6000, 4800)),
				shared(hold("b", 2, 10, 4000, 4601, 6000, 4800)), asking("a", 1, "k", 50, 4900)),
			nil},
		{"a writer that one overtakes whose process has its turn only later",
			of(hold("c", 1, 9, 1, 2, 5000, 4000), hold("b", 1, 11, 40, 4401, 6000, 4800),
				hold("b", 2, 10, 3999, 4001, 6000, 4400), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that one overtakes whose process hands the key on for too long",
			of(hold("c", 1, 9, 1, 2, 5000, 4000), hold("b", 1, 10, 40, 4001, 6000, 4190),
				hold("b", 2, 11, 3998, 4200, 6000, 4390), hold("b", 3, 12, 3999, 4400, 6000, 4800),
				asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that two of a process overtake who both came much later",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), hold("b", 1, 10, 3900, 4601, 6000, 4650),
				hold("b", 2, 11, 4000, 4651, 6000, 4800), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that one overtakes while another process has had the key in its turn",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), hold("d", 1, 10, 40, 4601, 6000, 4650),
				hold("b", 2, 11, 4000, 4651, 6000, 4800), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},

		{"a writer that one overtakes whose process comes again after it",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), hold("b", 1, 10, 4000, 4601, 6000, 4650),
				hold("a", 1, 11, 50, 4660, 6000, 4700), hold("b", 2, 12, 4655, 4710, 6000, 4800)),
			[]string{"starvation"}},
		{"a writer that another one overtakes behind a reader of its process",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), shared(hold("b", 1, 10, 40, 4601, 6000, 4650)),
				hold("b", 2, 11, 4000, 4651, 6000, 4800), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that a reader overtakes behind a writer of its process",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), hold("b", 1, 10, 40, 4601, 6000, 4650),
				shared(hold("b", 2, 11, 4000, 4651, 6000, 4800)), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that one overtakes just before the turn of its process",
			of(hold("c", 1, 9, 1, 2, 5000, 4400), hold("b", 2, 10, 4000, 4401, 6000, 4500),
				hold("b", 1, 11, 40, 4650, 6000, 4800), asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that one overtakes whose process had the key before another one",
			of(hold("c", 1, 9, 1, 2, 5000, 4400), hold("b", 1, 10, 40, 4401, 6000, 4450),
				hold("d", 1, 11, 45, 4460, 6000, 4500), hold("b", 2, 12, 4000, 4510, 6000, 4800),
				asking("a", 1, "k", 50, 4900)),
			[]string{"starvation"}},
		{"a writer that a reader overtakes who joins one of its process, as does another process",
			of(hold("c", 1, 9, 1, 2, 5000, 4600), shared(hold("b", 1, 10, 40, 4601, 6000, 4800)),
				shared(hold("d", 1, 11, 45, 4602, 6000, 4800)),
				shared(hold("b", 2, 12, 4000, 4603, 6000, 4800)), asking("a", 1, "k", 50, 4900)),
			nil},

		{"a set waits while nobody has its keys", of(part(1, "k", asking("a", 1, "k", 1, 3500)),
			part(1, "l", asking("a", 2, "l", 1, 3500))), []string{"sets"}},
		{"a set waits for as long as it may take",
			of(part(1, "k", asking("a", 1, "k", 1, 3001)),
				part(1, "l", asking("a", 2, "l", 1, 3001))), nil},
		{"a set waits for a key that somebody has",
			of(part(1, "k", asking("a", 1, "k", 1, 3500)),
				part(1, "l", asking("a", 2, "l", 1, 3500)), hold("b", 1, 10, 1, 2, 3000, 1000)),
			nil},
		{"a set waits for one that waits for a third",
			of(part(1, "k", asking("a", 1, "k", 1, 3500)),
				part(1, "l", asking("a", 2, "l", 1, 3500)),
				part(1, "l", asking("c", 1, "l", 1, 3500)),
				part(1, "m", asking("c", 2, "m", 1, 3500)),
				part(9, "m", hold("b", 9, 10, 1, 2, 3000, 1000))), nil},
		{"two sets wait for each other", of(part(1, "k", asking("a", 1, "k", 1, 3500)),
			part(1, "l", asking("a", 2, "l", 1, 3500)),
			part(1, "l", asking("b", 1, "l", 1, 3600)),
			part(1, "k", asking("b", 2, "k", 1, 3600))), []string{"sets", "sets"}},
		{"a set waits while something is broken", of(part(1, "k", asking("a", 1, "k", 1, 3500)),
			part(1, "l", asking("a", 2, "l", 1, 3500)), at("l", on("n1", "", 10, 20))), nil},
		{"one waits for a key that a set waits with",
			of(part(1, "k", asking("a", 1, "k", 1, 3001)), asking("b", 1, "k", 1, 5500)), nil},
		{"one waits for a key that a set has left behind",
			of(part(1, "k", asking("a", 1, "k", 1, 10)), asking("b", 1, "k", 1, 5500)),
			[]string{"idle"}},
	} {
		t.Run(c.name, func(t *testing.T) { found(t, c.records, c.want) })
	}
}

// On several servers the queue is in the order of the clients' clocks, which differ in some runs.
func TestNoTurnsByClocksThatDiffer(t *testing.T) {
	for nodes, want := range map[int][]string{1: {"starvation"}, 3: nil} {
		rules := rules
		rules.Nodes, rules.Skewed = nodes, true
		foundBy(t, rules, of(crowd(5, shared), asking("a", 1, "k", 50, 4900)), want)
	}
}
