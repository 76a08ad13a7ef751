package check_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// said returns a call that was answered, in milliseconds. Its lease is a second.
func said(name, target, owner string, token uint64, from, to int64) history.Record {
	c := history.Record{Kind: history.Call, Name: name, Target: target, Key: "k", Owner: owner,
		Token: token, Block: 2, At: ms(from), Until: ms(to), Outcome: "held", TTL: ms(1000)}
	if name == history.LetGo {
		c.Token, c.Block = 0, 0
	}
	return c
}

// sent returns a call without an answer, of a process that was killed before the answer.
func sent(name, target, owner string, at int64) history.Record {
	return history.Record{Kind: history.Sent, Name: name, Target: target, Key: "k", Owner: owner,
		At: ms(at), TTL: ms(1000)}
}

// with changes a record.
func with(r history.Record, change func(*history.Record)) history.Record {
	change(&r)
	return r
}

func TestModel(t *testing.T) {
	const acquire, renew, release, notice = history.Acquire, history.Renew,
		history.LetGo, history.Notice
	forgotten := func(server string, from, to int64) history.Record {
		return with(on(server, "", from, to), func(f *history.Record) { f.Forget = true })
	}
	completed := func(token uint64, until int64) history.Record {
		return said(acquire, "all", "a", token, 1, until)
	}
	unanswered := func(r history.Record) history.Record {
		return with(r, func(r *history.Record) { r.Outcome, r.Token = "failed", 0 })
	}
	five := history.Record{Kind: history.Set, At: ms(1), Count: 5}
	for _, c := range []struct {
		name    string
		records []history.Record
		want    string // the check that finds something
	}{
		{"granted by a majority",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 10, 1, 3),
				completed(10, 4)), ""},
		{"granted by a majority of 3, of a set that has grown to 5",
			of(five, said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 10, 1, 3),
				completed(10, 4)), "acknowledged"},
		{"granted by a majority of 5",
			of(five, said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 10, 1, 3),
				said(acquire, "n5", "a", 10, 1, 3), completed(10, 4)), ""},
		{"granted and heard of",
			of(said(acquire, "n1", "a", 10, 1, 2), said(notice, "n2", "a", 10, 3, 3),
				completed(10, 4)), ""},
		{"granted and raised",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 8, 1, 2),
				said(renew, "n2", "a", 10, 3, 4), completed(10, 5)), ""},
		{"granted and raised beyond",
			of(said(acquire, "n1", "a", 10, 1, 2), said(renew, "n2", "a", 12, 3, 4),
				completed(10, 5)), ""},
		{"granted by a minority", of(said(acquire, "n1", "a", 10, 1, 2), completed(10, 4)),
			"acknowledged"},
		{"granted twice by the same",
			of(said(acquire, "n1", "a", 10, 1, 2), said(renew, "n1", "a", 12, 2, 3),
				completed(10, 4)), "acknowledged"},
		{"granted smaller and not raised",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 8, 1, 2),
				completed(10, 4)), "acknowledged"},
		{"raised, but not far enough",
			of(said(acquire, "n1", "a", 10, 1, 2), said(renew, "n2", "a", 8, 1, 2),
				completed(10, 4)), "acknowledged"},
		{"granted larger",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 12, 1, 2),
				completed(10, 4)), "acknowledged"},
		{"granted too late",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "a", 10, 1, 5),
				completed(10, 4)), "acknowledged"},
		{"granted to another",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "b", 10, 1, 2),
				completed(10, 4)), "acknowledged"},
		{"renewed without tokens",
			of(said(acquire, "n1", "a", 10, 1, 2),
				with(said(renew, "n2", "a", 10, 1, 2), func(r *history.Record) {
					r.Block = 0
				}), completed(10, 4)), "acknowledged"},
		{"raise refused",
			of(said(acquire, "n1", "a", 10, 1, 2),
				with(said(renew, "n2", "a", 10, 2, 3), func(r *history.Record) {
					r.Outcome = "lost"
				}), completed(10, 4)), "acknowledged"},

		{"rose", of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 3, 4),
			said(acquire, "n1", "b", 12, 5, 6)), ""},
		{"fell within the block",
			of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 3, 4),
				said(acquire, "n1", "b", 11, 5, 6)), "rising"},
		{"fell for the same owner",
			of(said(acquire, "n1", "a", 10, 1, 2), said(renew, "n1", "a", 9, 3, 4)), "rising"},
		{"fell, asked for at the same time",
			of(said(acquire, "n1", "a", 10, 1, 3), said(release, "n1", "a", 0, 3, 3),
				said(acquire, "n1", "b", 8, 3, 6)), ""},
		{"fell at different nodes",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n2", "b", 8, 5, 6)), ""},
		{"fell after the node forgot",
			of(said(acquire, "n1", "a", 10, 1, 2), forgotten("n1", 2000, 2001),
				said(acquire, "n1", "b", 8, 2005, 2006)), ""},
		{"fell after another node forgot",
			of(said(acquire, "n1", "a", 10, 1, 2), forgotten("n2", 2000, 2001),
				said(acquire, "n1", "b", 8, 2005, 2006)), "rising"},
		{"one token twice",
			of(said(acquire, "n1", "a", 10, 1, 5), said(release, "n1", "a", 0, 5, 5),
				said(acquire, "n1", "b", 10, 2, 6)), "rising"},

		{"one's after the other's",
			of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 20, 30),
				said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"both's", of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 30, 40),
			said(acquire, "n1", "b", 12, 21, 22)), "sole"},
		{"both's, by a renewal",
			of(said(acquire, "n1", "a", 10, 1, 2), said(renew, "n1", "a", 12, 900, 901),
				said(acquire, "n1", "b", 14, 1100, 1101)), "sole"},
		{"after the lease",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n1", "b", 12, 995, 996)), ""},
		{"before the lease was over",
			of(said(acquire, "n1", "a", 10, 1, 2), said(acquire, "n1", "b", 12, 985, 986)), "sole"},
		{"released, and killed before the answer",
			of(said(acquire, "n1", "a", 10, 1, 2), sent(release, "n1", "a", 20),
				said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"released at another node, and killed before the answer",
			of(said(acquire, "n1", "a", 10, 1, 2), sent(release, "n2", "a", 20),
				said(acquire, "n1", "b", 12, 21, 22)), "sole"},
		{"granted before the release of one that was killed",
			of(said(acquire, "n1", "a", 10, 1, 2), sent(release, "n1", "a", 20),
				said(acquire, "n1", "b", 12, 11, 12)), "sole"},
		{"released and answered, after another one",
			of(said(acquire, "n1", "a", 10, 1, 2), sent(release, "n1", "a", 3),
				said(release, "n1", "a", 0, 3, 4), said(renew, "n1", "a", 12, 10, 11),
				said(acquire, "n1", "b", 14, 21, 22)), "sole"},
		{"a release of before the node forgot",
			of(said(acquire, "n1", "a", 8, 1, 2), sent(release, "n1", "a", 3),
				forgotten("n1", 2000, 2001), said(acquire, "n1", "a", 10, 3000, 3001),
				said(acquire, "n1", "b", 12, 3010, 3011)), ""},
		{"a release that may come at any time", of(unanswered(said(release, "n1", "a", 0, 1, 2)),
			said(acquire, "n1", "a", 10, 3, 4), said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"released, answered after the node forgot",
			of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 75, 1925),
				said(acquire, "n1", "b", 12, 80, 81), forgotten("n1", 1500, 1501)), ""},
		{"released, answered long after the node forgot",
			of(said(acquire, "n1", "a", 10, 2000, 2001), said(release, "n1", "a", 0, 2002, 9000),
				said(acquire, "n1", "b", 12, 2003, 2004), forgotten("n1", 500, 501),
				forgotten("n1", 4000, 4001)), ""},
		{"a release of before the node forgot, answered after it",
			of(said(release, "n1", "a", 0, 1, 3005), forgotten("n1", 1500, 1501),
				said(acquire, "n1", "a", 10, 3000, 3001), said(acquire, "n1", "b", 12, 3010, 3011)),
			""},
		{"a release of before the node forgot, answered before the lease",
			of(said(release, "n1", "a", 0, 1, 2005), forgotten("n1", 1500, 1501),
				said(acquire, "n1", "a", 10, 3000, 3001), said(acquire, "n1", "b", 12, 3010, 3011)),
			"sole"},
		{"undone by a node in quarantine that was asked again",
			of(said(acquire, "n1", "a", 10, 1, 2), unanswered(said(acquire, "n1", "a", 10, 10, 12)),
				said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"granted before it was undone",
			of(said(acquire, "n1", "a", 10, 1, 2), unanswered(said(acquire, "n1", "a", 10, 10, 12)),
				said(acquire, "n1", "b", 12, 8, 9)), "sole"},
		{"asked another node again, which was in quarantine",
			of(said(acquire, "n1", "a", 10, 1, 2), unanswered(said(acquire, "n2", "a", 10, 10, 12)),
				said(acquire, "n1", "b", 12, 21, 22)), "sole"},
		{"refused before",
			of(unanswered(said(acquire, "n1", "a", 10, 1, 2)), said(acquire, "n1", "a", 10, 3, 4),
				said(acquire, "n1", "b", 12, 21, 22)), "sole"},
		{"granted before a release, answered after the node forgot",
			of(said(acquire, "n1", "a", 10, 1, 2), said(release, "n1", "a", 0, 75, 1925),
				said(acquire, "n1", "b", 12, 70, 71), forgotten("n1", 1500, 1501)), "sole"},
		{"a release before",
			of(said(release, "n1", "a", 0, 1, 2), said(acquire, "n1", "a", 10, 3, 4),
				said(acquire, "n1", "b", 12, 21, 22)), "sole"},
		{"both's, since the node forgot",
			of(said(acquire, "n1", "a", 10, 1, 2), forgotten("n1", 5, 6),
				said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"both's, and its clock jumped",
			of(said(acquire, "n1", "a", 10, 1, 2), on("n1", "jumped", 5, 6),
				said(acquire, "n1", "b", 12, 21, 22)), ""},
		{"both's, and another key was deleted",
			of(said(acquire, "n1", "a", 10, 1, 2), at("other", on("n1", "deleted", 5, 6)),
				said(acquire, "n1", "b", 12, 21, 22)), "sole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := rules
			rules.Nodes = 3
			for _, name := range []string{"acknowledged", "rising", "sole"} {
				found := check.Checks[name](history.Assemble(c.records), rules)
				if (len(found) > 0) != (name == c.want) {
					t.Errorf("%s found %v; want it from %q", name, found, c.want)
				}
			}
		})
	}
}

// An owner value belongs to one acquisition, whichever client makes it and however often it asks.
func TestOwners(t *testing.T) {
	by := func(client, key, owner string) history.Record {
		return with(said(history.Acquire, "n1", owner, 10, 1, 2), func(r *history.Record) {
			r.Client, r.Key = client, key
		})
	}
	for _, c := range []struct {
		name    string
		records []history.Record
		found   int
	}{
		{"asked again, and at another server",
			of(by("a.1", "k", "x/h/1/"), by("a.1", "k", "x/h/1/"),
				with(by("a.1", "k", "x/h/1/"), func(r *history.Record) {
					r.Target = "n2"
				})), 0},
		{"two of them", of(by("a.1", "k", "x/h/1/"), by("b.1", "k", "y/h/2/")), 0},
		{"two clients", of(by("a.1", "k", "x/h/1/"), by("b.1", "k", "x/h/2/")), 1},
		{"a process started anew", of(by("a.1", "k", "x/h/1/"), by("a.2", "k", "x/h/1/")), 1},
		{"two keys", of(by("a.1", "k", "x/h/1/"), by("a.1", "other", "x/h/1/")), 1},
	} {
		if found := check.Checks["owners"](history.Assemble(c.records),
			rules); len(found) != c.found {
			t.Errorf("%s: found %v", c.name, found)
		}
	}
}
