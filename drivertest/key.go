package drivertest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Keys are arbitrary bytes, up to driver.MaxKeyLen of them, and different keys are different locks.
var keyRules = []rule{
	{name: "Keys/EveryByte", check: func(s *suite) {
		var keys []string
		for i := range 256 {
			keys = append(keys, string([]byte{byte(i)}))
		}
		s.distinct(keys)
	}},
	{name: "Keys/EveryByteWithin", check: func(s *suite) {
		var keys []string
		for i := range 256 {
			keys = append(keys, string([]byte{'a', byte(i), 'b'}))
		}
		s.distinct(keys)
	}},
	{name: "Keys/Awkward", check: func(s *suite) {
		long := strings.Repeat("x", driver.MaxKeyLen-1)
		s.distinct([]string{
			"a", "A", "aa", "a ", " a", "a\x00", "\x00a", "a\n", "a\r\n", "a.", "a/", "a//", "/a",
			"a\\", "a%", "a%20", "a+",
			// forms that Unicode holds equal, or folds
			"ä", "a\u0308", "Ä", "ß", "ss", "ı", "i", "I", "İ", "K", "\u212a",
			".", "..", "/", "//", "./a", "../a", "a/../a", "a/b", "a/b/c", "~", "-", "--", "-a",
			"*", "?", "[a]", "a*", "a?",
			"{", "}", "{}", "{a}", "{a}b", "a{b}", "{{a}}", "{}{a}", "}{", "a{", "a}", "{\x00}",
			"CON", "nul", "com1", "lost+found", ".lock", "a.lock", "a.tmp", "$HOME", "`a`", "a;b",
			"a|b", "'a'", `"a"`, "a\tb",
			"\xff", "\xff\xfe", "a\xff", "\xc3", "\xc3\x28", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80",
			"0", "00", "1e3", "1000", "true", "null", "nil", "__proto__", "lock:a", "holdfast:a",
			long, long + "x", long + "y", long + "\xff", strings.Repeat("\x00", driver.MaxKeyLen),
			strings.Repeat("ü", driver.MaxKeyLen/2),
			strings.Repeat("a/", driver.MaxKeyLen/2), strings.Repeat("\xff", 255),
			strings.Repeat("\xff", 256), strings.Repeat("x", 255), strings.Repeat("x", 256),
		})
	}},
}

// distinct holds all keys at once, checks that each is a lock with a queue of its own, and frees
// them.
func (s *suite) distinct(keys []string) {
	s.Helper()
	b := s.open()
	claims := make([]driver.Claim, len(keys))
	for i, key := range keys {
		claims[i] = s.lasting(b, s.claim(key))
		s.hold(b, claims[i])
	}
	if i, ok := b.(driver.Inspector); ok {
		s.lists(i, "", keys)
	}
	s.batch(b, claims, slices.Repeat([]driver.State{driver.Held}, len(claims))...)
	for _, c := range claims {
		w := s.queued(c.Key)
		if s.Capabilities.Queue {
			s.visit(b, w, c)
		} else {
			s.busy(b, w, c)
		}
		s.release(b, c, driver.Held)
	}
	for _, key := range keys {
		s.free(b, key)
	}
}
