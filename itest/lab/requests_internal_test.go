//go:build unix

package lab

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// What a client sends is read in whole requests, one by one or all at once, however it arrives.
// What is left at the end is read, too.
func TestRequests(t *testing.T) {
	const get, set, rest = "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n", "*1\r\n$4\r\nPI"
	for _, c := range []struct {
		name   string
		from   io.Reader
		single bool
		want   []string
	}{
		{"one by one", strings.NewReader(get + set + "PING\r\n" + rest), true,
			[]string{get, set, "PING\r\n", rest}},
		{"all that is there", strings.NewReader(get + set + rest), false,
			[]string{get + set + rest}},
		{"as it comes", iotest.OneByteReader(strings.NewReader(get + set + rest)), false,
			[]string{get, set, rest}},
		{"nothing", strings.NewReader(""), false, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			next := requests(c.from)
			for err := error(nil); err == nil; {
				var part []byte
				part, err = next(func() bool { return c.single })
				if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				got = append(got, string(part))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("read %q, want %q", got, c.want)
			}
		})
	}
}
