//go:build mutants

package quorum_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mutation is a place in this package that is broken on purpose, and the simulation that has to
// notice.
type mutation struct {
	name     string
	file     string
	old, new string // old is in the file exactly once
	plan     string // see HOLDFAST_PLAN; empty: any
	seen     int    // which history from seed 1 on noticed it when it was tried last

	// test is the test that notices; empty: the simulation. It is another one where the simulation
	// would have to meet with an accident that is too rare to wait for.
	test string
	in   string // the package of the test; empty: this one

	// equivalent says why no test can notice.
	equivalent string
}

// mutations are those of the quorum. What is wrong with servers and not with the quorum is in
// TestSimulationNotices.
var mutations = []mutation{
	{name: "a stale answer counts as a vote", file: "keys.go",
		old: "c.Claim.Queue && latest && err == nil", new: "c.Claim.Queue && err == nil",
		plan: "ambush", seen: 13665},
	{name: "takes the answer to a release for one to a request", file: "keys.go",
		old: "c.Op == node.Acquiring && c.Claim.Queue && latest", new: "c.Claim.Queue && latest",
		test: "^TestPartIsGivenBackOnce$"},
	{name: "sends acquisitions after their release has begun", file: "internal/node/call.go",
		old: "c.Op == Acquiring && c.over()", new: "false",
		test: "^TestReleaseEndsWaitingAcquisition$"},
	{name: "makes releases that are needless", file: "internal/node/call.go",
		old: "case c.needless():", new: "case false:",
		test: "^TestReleasesAfterAnOutageLeaveNodesTime$"},
	{name: "does not make the probe if it is needless", file: "internal/node/call.go",
		old: "!c.queued || c.Probe {", new: "!c.queued {",
		test: "^TestReleasesAfterAConfirmedOneAreNotMade$", in: "./internal/node"},
	{name: "asks nodes again that have confirmed a release", file: "round.go",
		old: "r.op == node.Releasing && !r.record.history.Touched().Has(i)", new: "false",
		test: "^TestConfirmedReleaseIsNotRepeated$"},
	{name: "forces releases that are repeated", file: "round.go",
		old: "force || r.repeats(i)", new: "force",
		test: "^TestRepeatedReleaseSparesNodesThatAreDown$"},
	{name: "takes a release for one of a later acquisition", file: "internal/node/history.go",
		old: "if latest {", new: "if true {",
		test: "^TestReleaseOfALaterAcquisitionIsMade$", in: "./internal/node"},
	{name: "makes releases that wait for their turn with another", file: "internal/node/history.go",
		old: "c.Op != Releasing || !h.released.Has(i)", new: "true",
		test: "^TestReleaseThatWaitsIsMadeOnce$"},
	{name: "takes a release for a repetition though an acquisition came between",
		file: "internal/node/history.go",
		old:  "\t\th.released &^= Only(i)\n", new: "",
		test: "^TestReleaseOfALaterAcquisitionIsMade$", in: "./internal/node"},
	{name: "repeats a release that failed after another was confirmed",
		file: "internal/node/history.go",
		old:  "\th.again &^= Only(i)\n\th.pending &^= Only(i)\n", new: "\th.again &^= Only(i)\n",
		test: "^TestReleasesAfterAConfirmedOneAreNotMade$", in: "./internal/node"},
	{name: "a probe that is not made stays the probe", file: "internal/node/call.go",
		old: "\t\t\tc.Node.unprobed()\n", new: "",
		test: "^TestReleaseEndsWaitingAcquisition$"},
	{name: "queues at nodes of any presence", file: "internal/node/call.go",
		old: "result.Presence <= min(c.Bound, g.config.MinPresence)", new: "false",
		test: "^TestR24_ShortPresence$"},
	{name: "leaves what does not queue", file: "acquire.go",
		old: "\t\tq.giveBack(claim)\n\tdefault:", new: "\tdefault:",
		test: "^TestR17_WithoutAQueueNothingIsLeft$"},
	{name: "heals without validity", file: "heal.go",
		old: "!r.held ||\n\t\tclock.Now().Sub(h.start) >= claim.TTL-h.q.config.allowance(claim.TTL)",
		new: "!r.held",
		equivalent: "An acquisition takes no key from another, so late healing can at most keep a key that its holder has given up for a TTL more. " +
			"It has not: whoever lets a lease end releases it, and that release follows in the key's order. What the check spares is the key of a " +
			"process that lives and does not release, which the kernel never does."},
	{name: "heals what was released", file: "heal.go", old: "r == nil || !r.held ||",
		new: "r == nil ||", test: "^TestHealingSparesOthersAndTheDead$"},
	{name: "accepts a handoff after the heartbeat lapsed", file: "wait.go",
		old: " && o.lasts() >= w.promised", new: "",
		plan: "ambush", seen: 54},
	{name: "takes a block that one node has granted", file: "wait.go",
		old: " && o.block >= v.block && ", new: " && ", plan: "ambush", seen: 114},
	{name: "is told of no grant after the first presence", file: "wait.go",
		old: "!w.told || until > w.promised {", new: "!w.told {",
		test: "^TestHandoffAfterLongerThanAPresence$"},
	{name: "is told of grants that last for the presence told last", file: "wait.go",
		old: "!w.told || until > w.promised {", new: "true {",
		test: "^TestGrantLastsForTheLongestPromise$"},
	{name: "is told of grants before it was told a presence", file: "wait.go",
		old: "!w.told || clock.Now() >= w.promised {", new: "clock.Now() >= w.promised {",
		equivalent: "Until then promised is the zero instant, which is over. It is not over in a bubble of fake time, where the lease clock is " +
			"negative, but there no vote lasts until then."},
	{name: "does not tell waiters their place", file: "wait.go",
		old: "\t\t\tresult.Clock = q.clockFor(w, r.start)\n", new: "",
		test: "^TestOutageDoesNotChangeTheOrder$"},
	{name: "tells waiters the time for their place", file: "wait.go",
		old: "start == w.began && w.claim.Ticket != 0", new: "false",
		test: "^TestWaiterIsToldItsTicket$"},
	{name: "tells waiters their place for the time", file: "wait.go",
		old: "start == w.began && w.claim.Ticket != 0", new: "w.claim.Ticket != 0",
		test: "^TestWaiterIsToldItsTicket$"},
	{name: "goes by the client's clock if one node does not tell its clock", file: "ticket.go",
		old: "few := silent > len(q.nodes)-q.need", new: "few := silent > 0",
		test: "^TestNodeThatTellsNoClockLeavesItToTheOthers$"},
	{name: "goes by the clocks of few nodes", file: "ticket.go",
		old: "few := silent > len(q.nodes)-q.need", new: "few := silent == len(q.nodes)",
		test: "^TestFewNodesThatTellTheirClocks$"},
	{name: "counts a grant from its answer", file: "wait.go",
		old: "v.expires = start.Add(claim.TTL)", new: "v.expires = now.Add(claim.TTL)",
		test: "^TestR1_GrantInAnAnswerLastsFromTheRequest$"},
	{name: "forgets a request without an answer", file: "wait.go",
		old: "before := w.began.Add(result.Presence)", new: "before := start.Add(result.Presence)",
		test: "^TestR1_NoticeAfterAnUnansweredRequestIsNoGrant$"},
	{name: "a late notice replaces an answer", file: "wait.go",
		old: "\tif !v.held {\n\t\tv.held, v.noticed", new: "\tif true {\n\t\tv.held, v.noticed",
		test: "^TestLateNoticeReplacesNoAnswer$"},
	{name: "weighs grants of claims that are over", file: "wait.go",
		old: "w == nil || r.record.history.Over() {", new: "w == nil {",
		equivalent: "What ends a claim also ends its wait, in the same step. Then w is nil."},
	{name: "counts the presence from the answer", file: "wait.go",
		old: "result.Presence > 0, start.Add(result.Presence)",
		new: "result.Presence > 0, now.Add(result.Presence)", test: "^TestNoticeAfterAnAbsence$"},
	{name: "an answer does not refute an earlier one", file: "wait.go",
		old: "v.doubtful || !v.noticed || v.since <= start", new: "v.doubtful || v.since <= start",
		test: "^TestAnswerRefutesEarlierAnswers$"},
	{name: "believes a notice of before an absence", file: "wait.go",
		old: "v.doubtful || !v.noticed || v.since <= start", new: "!v.noticed || v.since <= start",
		test: "^TestAnswerRefutesEarlierAnswers$"},
	{name: "passes on notices of a grant that is over", file: "wait.go",
		old: " || clock.Now() >= w.promised", new: "",
		test: "^TestR1_NoticesAfterThePresenceAreNoGrant$"},
	{name: "is present for longer than what was handed over lasts", file: "wait.go",
		old: "\t\tif w.handed {\n", new: "\t\tif false {\n",
		plan: "ambush", seen: 1031},
	{name: "raises one short", file: "acquire.go", old: "behind, q.need-acks)",
		new: "behind, q.need-acks-1)", seen: 97},
	{name: "raises with one acknowledgement", file: "acquire.go",
		old: "if acknowledged >= missing {", new: "if acknowledged >= 1 {",
		test: "^TestR38_EachRaiseCounts$"},
	{name: "renewals raise one short", file: "renew.go", old: "need -= acks",
		new: "need -= acks + 1", test: "^TestR38_EachRaiseCounts$"},
	{name: "renewals count tokens that were not raised", file: "renew.go",
		old:  "if t := &b.tallies[k]; t.held < t.need {",
		new:  "if t := &b.tallies[k]; t.held < t.need && false {",
		test: "^TestR38_EachRaiseCounts$"},
	{name: "renewals raise nodes that agree, and count them twice", file: "renew.go",
		old:  "State == driver.Held &&\n\t\t\t\tp.answers[k].Token < token {",
		new:  "State == driver.Held {",
		test: "^TestR38_EachRaiseCounts$"},
	{name: "renewals count smaller tokens as agreement", file: "renew.go",
		old: "token, acks = drawn, 1", new: "token, acks = drawn, acks+1",
		test: "^TestR38_EachRaiseCounts$"},
	{name: "does not see tokens that come too late", file: "keys.go",
		old: "\t\tr.q.saw(result.Token, c.Claim.Block)\n", new: "",
		test: "^TestR38_TokensOfAClientRise$"},
	{name: "does not see tokens that it is told of", file: "wait.go",
		old: "\t\tq.saw(v.token, v.block)\n", new: "", test: "^TestR38_TokensOfAClientRise$"},
	{name: "renewals are lost one node early", file: "renew.go", old: "case t.lost > n-t.need:",
		new: "case t.lost >= n-t.need:", test: "^TestRenewIsNotLostTooEarly$"},
	{name: "heals what has no majority", file: "heal.go", old: "t.held < t.need || t.lost == 0",
		new: "t.lost == 0", test: "^TestRenewIsNotLostTooEarly$"},
	{name: "asks no node that was down about a key that is held", file: "round.go",
		old:  "case t.leftOut > 0 && t.answered+t.asked < need:\n\t\t// Failures",
		new:  "case possible && t.answered+t.asked < need:\n\t\t// Failures",
		test: "^TestNodeThatIsBackTellsWhoHoldsTheKey$"},
	{name: "takes a possible majority for a failure", file: "acquire.go",
		old: "t.held+open >= q.need ||", new: "t.held+open > q.need ||",
		test: "^TestFailureIsUnknownIfAMajorityIsPossible$"},
	{name: "waits for what it has", file: "acquire.go",
		old: "r.record.drew(token, r.claim.Block)\n\t\tr.record.stopWaiting()",
		new: "r.record.drew(token, r.claim.Block)", test: "^TestNoNoticeToWhatHasTheKey$"},
	{name: "a failed round ends a later one", file: "acquire.go",
		old: "known != r.record || known.generation != r.generation", new: "known != r.record",
		test: "^TestEndOfAnEarlierRound$"},
	{name: "is present for the longest presence", file: "acquire.go",
		old: "presence == 0 || here < presence", new: "here > presence",
		test: "^TestPresenceOfAWaiter$"},
	{name: "is present on a minority", file: "acquire.go", old: "if queued >= r.q.need {",
		new: "if queued > 0 {", test: "^TestPresenceOfAWaiter$"},
	{name: "forgets what is renewed", file: "renew.go",
		old: "\tr.expires = max(r.expires, q.surelyEnded(claim, start))\n", new: "",
		test: "^TestSweepSparesWhatIsNeeded$"},
	{name: "forgets what waits", file: "keys.go", old: " && r.queued == nil && now", new: " && now",
		test: "^TestSweepSparesWhatIsNeeded$"},
	{name: "forgets what a node has not released", file: "keys.go",
		old: "over := r.history.Idle() && ", new: "over := ",
		test: "^TestSweepSparesWhatIsNeeded$"},
	{name: "forgets what was asked for again", file: "keys.go",
		old: "if r.generation == 0 || until > r.expires {", new: "if r.generation == 0 {",
		test: "^TestSweepSparesWhatIsNeeded$"},
	{name: "forgets claims after one TTL", file: "keys.go",
		old: "start.Add(2*claim.TTL + q.config.bound(claim.TTL))", new: "start.Add(claim.TTL)",
		equivalent: "The validity of a lease is over then, so the holder has ended it and released it, which makes a record that knows nothing " +
			"and releases on all nodes. A claim that queues, or has a call or a release under way, is not forgotten at all."},
	{name: "an earlier round asks more nodes for a later one", file: "round.go",
		old: "known == r.record && known.generation == r.generation &&",
		new: "known == r.record &&",
		equivalent: "It asks for the same claim, so a node that has it or grants it gives the owner what the later round asks for, and the release " +
			"that ends the claim comes after it. The check spares the nodes a request."},
	{name: "heals what is left when it is closed", file: "heal.go",
		old: "if h.q.group.Context().Err() != nil {", new: "if false {",
		test: "^TestCloseEndsHealing$"},
	{name: "heals with token 1", file: "heal.go", old: "claim.Token = max(r.top, p.above)",
		new: "claim.Token = 1", plan: "rolling", seen: 13},
	{name: "heals readers without the tokens of others", file: "heal.go", old: "\t\th.draw(part)\n",
		new: "", test: "^TestR38_ReadersHealWithTheTokensOfOthers$"},
	{name: "heals without the tokens of those that it lets in", file: "heal.go",
		old: "case p.claim.Shared || r.shared:", new: "case p.claim.Shared:",
		test: "^TestR38_ReadersHealWithTheTokensOfOthers$"},
	{name: "asks for tokens to heal a writer with as if it shared", file: "heal.go",
		old: "case p.claim.Shared || r.shared:", new: "case true:",
		test: "^TestR1_HealingLeavesAWriterAlone$"},
	{name: "heals readers only if it learns all tokens", file: "heal.go",
		old: "p.lost.Has(n) && h.set", new: "p.lost.Has(n) && p.sure && h.set",
		test: "^TestReaderIsHealedThoughNodesDoNotAnswer$"},
	{name: "draws all tokens at once to heal", file: "heal.go", old: "drawsAtOnce = 10",
		new: "drawsAtOnce = 1000", test: "^TestHealingManyReadersLeavesNodesTime$"},
	{name: "asks again for tokens that nobody tells", file: "heal.go",
		old: "append(but, h.silent|p.lost)", new: "append(but, p.lost)",
		test: "^TestManyReadersAreHealedThoughNodesDoNotAnswer$"},
	{name: "asks nobody again for tokens when a node does not answer", file: "heal.go",
		old: "h.silent |= node.Only(i)", new: "h.silent = node.Every(len(b.parts))",
		test: "^TestR38_ManyReadersHealWithWhatOneNodeKnows$"},
	{name: "waits for one answer only beside nodes that do not answer", file: "batch.go",
		old: "b.tallies[k].failed = int8(nodes.Count())\n", new: "",
		test: "^TestR38_ManyReadersHealWithWhatOneNodeKnows$"},
	{name: "is sure of tokens though too few nodes told them", file: "heal.go",
		old: "p.sure = q.knowing(b.having(k, driver.Held), unsure[k])", new: "p.sure = true",
		test: "^TestR38_NodeThatIsToldWhatFewKnowStaysUnsure$"},
	{name: "counts unsure nodes towards a majority", file: "heal.go",
		old: "(nodes&^unsure).Count() >= q.need", new: "nodes.Count() >= q.need",
		test: "^TestR38_NodeThatIsToldWhatFewKnowStaysUnsure$"},
	{name: "asks for no more than a majority though some are unsure", file: "heal.go",
		old: "q.need+(unsure&^lost).Count()", new: "q.need",
		test: "^TestR38_NodeThatWasHealedWithTooFewTokensGetsThem$"},
	{name: "asks for tokens while nodes are missing", file: "heal.go",
		old:  "b.unsure != nil && t.held >= b.q.most(b.unsure[k], p.lost)",
		new:  "b.unsure != nil",
		test: "^TestR38_NodeThatWasHealedWithTooFewTokensGetsThem$"},
	{name: "waits for nodes that have lost the claim to tell tokens", file: "heal.go",
		old: "len(q.nodes)-lost.Count()", new: "len(q.nodes)",
		test: "^TestR38_LossWhileANodeIsUnsure$"},
	{name: "is sure without nodes where the lease has ended", file: "heal.go",
		old:  "nodes.Count() == len(q.nodes)",
		new:  "nodes.Count() >= q.need",
		test: "^TestR38_NodeThatIsToldWhatFewKnowStaysUnsure$"},
	{name: "is never sure if too many nodes are unsure", file: "heal.go",
		old: " || nodes.Count() == len(q.nodes)", new: "",
		test: "^TestR38_NodeWhereTheLeaseEndedMayKnowTheLastToken$"},
	{name: "is sure of a node once the claim was set there", file: "heal.go",
		old: "\tr.notSure(r.unsure | node.Only(n))\n", new: "",
		test: "^TestR38_NodeIsLostAgainBeforeItIsHealed$"},
	{name: "is sure of nodes that were lost meanwhile", file: "heal.go",
		old: " && r.setAt < h.start", new: "",
		test: "^TestR38_NodeIsLostAgainBeforeItAcknowledges$"},
	{name: "is sure of nodes while calls may set the claim again", file: "heal.go",
		old: " && !r.history.Busy()", new: "",
		test: "^TestR38_CallThatWaitsSetsTheClaimAgain$"},
	{name: "takes no note of when a claim was set again", file: "keys.go",
		old: "r.setAt = clock.Now()", new: "_ = r",
		test: "^TestR38_NodeIsLostAgainBeforeItAcknowledges$"},
	{name: "is sure of nodes though it asks nobody", file: "heal.go",
		old: "case r == nil: // nobody", new: "case r == nil: p.sure = true // nobody",
		test: "^TestR38_NodesStayUnsureIfAHealerComesTooLate$"},
	{name: "is sure of nodes that have not acknowledged the last token", file: "heal.go",
		old: "h.told(p, b.having(k, driver.Held))", new: "h.told(p, b.having(k, driver.Held)|p.unsure)",
		test: "^TestR38_NodeThatDoesNotAcknowledgeStaysUnsure$"},
	{name: "tells tokens to nodes that do not answer", file: "heal.go",
		old: "&^p.unsure|h.silent", new: "&^p.unsure",
		test: "^TestNodesThatDoNotAnswerAreNotToldTheTokensOfManyReaders$"},
	{name: "tells nodes that did not answer the last token", file: "heal.go",
		old: "b.unsure[k] & b.having(k, driver.Held)", new: "b.unsure[k]",
		test: "^TestR38_NodeThatDoesNotAnswerTheRenewalStaysUnsure$"},
	{name: "tells nodes older tokens than others know", file: "heal.go",
		old:  "claim.Shared, claim.Token, claim.Block = true, p.above, 1",
		new:  "claim.Shared, claim.Token, claim.Block = true, 1, 1",
		test: "^TestR38_NodeThatWasHealedWithTooFewTokensGetsThem$"},
	{name: "is sure of tokens that may not be the last ones", file: "heal.go",
		old: "if p.sure && r != nil", new: "if r != nil",
		test: "^TestR38_NodeThatIsToldWhatFewKnowStaysUnsure$"},
	{name: "asks nodes that were healed meanwhile for the last token", file: "heal.go",
		old: "append(but, h.silent|p.lost)", new: "append(but, h.silent)",
		equivalent: "Such a node is unsure, so it makes nobody sure. It may answer before others " +
			"do, and then the claim is set again without what they know, as if they had not " +
			"answered: the next renewal asks them."},
	{name: "takes nodes that it did not ask for silent ones", file: "heal.go",
		old: "p.progress == failed && p.err != nil", new: "p.progress == failed",
		test: "^TestR38_NodeThatLostOtherReadersIsAskedForTheLastToken$"},
	{name: "takes what a node says of one claim for another's", file: "batch.go",
		old:  "p.answers[k] = b.vote(n.Index, k, results[at])",
		new:  "p.answers[at] = b.vote(n.Index, k, results[at])",
		test: "^TestR38_ReadersThatDifferentNodesLostAreHealedTogether$"},
	{name: "stays unsure of nodes that writers were healed on", file: "heal.go", old: "p.sure = true",
		new: "_ = p", test: "^TestWritersAreHealedForSureBesideReaders$"},
	{name: "stays unsure of a node", file: "heal.go",
		old: "\t\tr.notSure(r.unsure &^ nodes)\n", new: "",
		test: "^TestR38_NodeThatWasHealedWithTooFewTokensGetsThem$"},
	{name: "looks for unsure nodes only of claims that are renewed as shared", file: "share.go",
		old:  "!claim.Shared && b.q.unsure.Load() == 0",
		new:  "!claim.Shared",
		test: "^TestR38_NodeThatWasHealedWithTooFewTokensGetsThem$"},
	{name: "counts unsure nodes of claims that are over", file: "keys.go",
		old:  "r.held = false\n\tr.notSure(0)\n",
		new:  "r.held = false\n",
		test: "^TestUnsureNodesAreForgottenWithTheClaim$"},
	{name: "counts unsure nodes of claims that are swept", file: "keys.go",
		old: "\t\t\t\tr.notSure(0)\n", new: "",
		test: "^TestUnsureNodesAreForgottenWithTheClaim$"},
	{name: "heals without the current token", file: "renew.go",
		old: "\tif claim.Block > 0 {\n\t\tr.drew(token, claim.Block)\n\t}", new: "\t_ = token",
		plan: "rolling", seen: 15},
	{name: "does not heal", file: "batch.go", old: "\t\tb.heal()\n", new: "", plan: "rolling",
		seen: 2},
	{name: "owes no releases", file: "internal/node/history.go", old: "pend = h.Pend(i)",
		new: "pend = false", plan: "lasting", seen: 1},
	{name: "owes no releases to nodes left out", file: "round.go",
		old: "r.owes(p, err) && r.record.history.Pend(i)", new: "false", plan: "lasting", seen: 11},
	{name: "a lost race gives nothing back", file: "round.go", old: "\t\tr.q.giveBack(r.claim)\n",
		new: "", plan: "lasting", seen: 3},
	{name: "abandoned acquisitions are not given back", file: "acquire.go",
		old: "\t\tr.cleaned = true\n\t\tq.giveBack(r.claim)\n",
		new: "\t\tr.cleaned = true\n", plan: "lasting", seen: 3},
	{name: "lost renewals leave the rest", file: "renew.go", old: "\t\tq.giveBack(claim)\n",
		new:  "\t\t_ = claim\n",
		test: "^TestR17_LostRenewalLeavesNothing$"},
	{name: "moves no waiters to their own places", file: "wait.go",
		old: "\t\tnodes |= w.unplaced\n", new: "",
		test: "^TestR24_FirstWaitersInDifferentOrders$"},
	{name: "takes a node that hangs for one that refused", file: "acquire.go",
		old: "open := t.maybe + t.asked", new: "open := t.maybe",
		test: "^TestQueuedPerhapsWhereANodeHangs$"},
	{name: "remembers what surely failed", file: "acquire.go", old: "\t\tq.dismiss(r)\n",
		new: "", plan: "lasting", seen: 12},
	{name: "leaves what it gave back before it was asked again", file: "acquire.go",
		old: "\tif q.endUnknown(r) {", new: "\tif q.endUnknown(r) && false {",
		test: "^TestR17_WaitThatEndsInRefusalsLeavesNothing$"},
	{name: "gives back the place that a caller knows of", file: "acquire.go",
		old: " && !known.queued.known", new: "",
		test: "^TestRefusalsLeaveThePlaceInTheQueue$"},
	{name: "gives back what is held", file: "acquire.go",
		old: "return !known.held && ", new: "return ",
		test: "^TestRefusalsLeaveWhatIsHeld$"},
	{name: "asks one node whether somebody waits", file: "renew.go",
		old:  "if p := &b.parts[i]; p.progress == answered && p.answers[k].Waiting {",
		new:  "if p := &b.parts[i]; i == 0 && p.progress == answered && p.answers[k].Waiting {",
		test: "^TestAnyNodeTellsThatSomebodyWaits$"},
	{name: "counts on nodes that may release yet", file: "doubt.go",
		old: "late = r.history.Ending()\n", new: "", test: "^TestR1_LateReleaseIsNoVote$"},
	{name: "does not ask nodes again that have not answered a release", file: "heal.go",
		old: " | b.doubtful(k)", new: "", test: "^TestNodeThatAnsweredNoReleaseIsAskedAgain$"},
	{name: "asks nodes again that have not answered a release only if others have lost the claim",
		file: "heal.go", old: "b.unsure == nil && b.late == nil", new: "b.unsure == nil",
		test: "^TestNodeThatAnsweredNoReleaseIsAskedAgain$"},
	{name: "looks for late releases when it has asked", file: "batch.go",
		old: "\tb.doubt()\n\tb.launch(false)\n", new: "\tb.launch(false)\n\tb.doubt()\n",
		test: "^TestR1_ReleaseDuringARenewalIsNoVote$"},
	{name: "second steps count on nodes that may release yet", file: "doubt.go",
		old: "result.State == driver.Held && b.late != nil",
		new: "b.heals && result.State == driver.Held && b.late != nil",
		equivalent: "A second step asks only nodes whose answer to the first step was a vote. Such an answer comes after every earlier release of the " +
			"claim. So what may release it yet was asked for since, by a caller that has ended the claim. A batch that asks for tokens to heal with " +
			"takes the largest one, whoever votes, and one more answer makes none smaller."},
	{name: "counts no releases that are under way", file: "internal/node/history.go",
		old: "h.doubts.Add(1)", new: "h.doubts.Add(0)", test: "^TestR1_LateReleaseIsNoVote$"},
	{name: "counts releases that were answered", file: "internal/node/history.go",
		old: "h.doubts.Add(-1)", new: "h.doubts.Add(0)",
		test: "^TestDoubtsAreCountedAsLongAsTheyLast$"},
	{name: "counts releases of claims that are forgotten", file: "keys.go",
		old: "\t\tr.history.Forget()\n\t}\n", new: "\t}\n",
		test: "^TestDoubtsEndWithTheirClaims$"},
	{name: "never counts on a node again that was late to release",
		file: "internal/node/history.go", old: "h.ending &^= Only(i)", new: "_ = i",
		test: "^TestAnsweredReleaseIsAVoteAgain$"},
	{name: "takes answers that were read late for none", file: "acquire.go",
		old:  "\t\tr.linger(ctx, queues)\n\t\tr.mu.Lock()\n\t\tt = r.tally()\n",
		new:  "\t\tr.linger(ctx, queues)\n\t\tr.mu.Lock()\n",
		test: "^TestAnswersReadLateAreAnswers$"},
	{name: "has the nodes that answer first decide whether a claim queues", file: "acquire.go",
		old:  "queues := t.answered >= q.need; t.held < q.need && r.missing(queues)",
		new:  "queues := false; t.held < q.need && t.answered < q.need",
		test: "^TestMajorityWithAQueueKeepsTheOrder$"},
	{name: "waits for a hung node though enough have queued", file: "round.go",
		old: "queued < r.q.need && queued+open", new: "queued+open",
		test: "^TestHungNodeDelaysNoWaiter$"},
	{name: "holds what was given back", file: "acquire.go", old: " || r.cleaned: //",
		new: ": //", plan: "ambush", seen: 4706},
	{name: "counts on a node that failed to answer a release", file: "internal/node/history.go",
		old:  "if err == nil && h.latest(c) {\n\t\th.ending",
		new:  "if h.latest(c) {\n\t\th.ending",
		test: "^TestR1_UnansweredReleaseIsNoVote$"},
	{name: "counts on a node that is owed a release", file: "internal/node/history.go",
		old: "return h.ending | h.pending", new: "return h.ending",
		test: "^TestR1_PendingReleaseIsNoVote$"},
	{name: "does not heal what was handed over", file: "wait.go",
		old: "\t\tr.held = true\n\t\tr.drew(v.token", new: "\t\tr.drew(v.token",
		test: "^TestHandedOverIsHealed$"},
	{name: "does not heal what was handed over before a Busy answer", file: "wait.go",
		old: "\t\tw.granted = false\n", new: "\t\tw.granted, r.record.held = false, false\n",
		test: "^TestHandoffThatIsReadAfterABusyAnswerIsHealed$"},
	{name: "heals what was handed over without its token", file: "wait.go",
		old: "\t\tr.drew(v.token, v.block)\n", new: "",
		test: "^TestHealingGoesOnAboveHandedOverTokens$"},
	{name: "believes notices of a node that is another one", file: "internal/node/node.go",
		old:  "n.refusing == 0 && n.identity.sameAs == \"\" && !quarantined",
		new:  "n.refusing == 0 && !quarantined",
		test: "^TestR10_NoticesOfAServerThatIsListedTwice$"},
	{name: "believes notices in quarantine until that is observed", file: "internal/node/node.go",
		old: "n.refusing == 0 && !n.quarantine)", new: "n.refusing == 0)",
		test: "^TestQuarantineBeforeItIsObserved$", in: "./internal/node"},
	{name: "queues again for a caller that has stopped asking", file: "wait.go",
		old:  "again := !another && w.told && clock.Now() < w.promised",
		new:  "again := !another",
		test: "^TestWaiterThatIsNotAskedForKeepsNothing$"},
	{name: "renewals lost everywhere leave the queues", file: "renew.go",
		old:  "result.State != driver.Held {",
		new:  "result.State != driver.Held && t.lost < n {",
		test: "^TestR17_LostRenewalLeavesTheQueue$"},
	{name: "accepts what came too late", file: "acquire.go",
		old: "took >= r.claim.TTL-q.config.allowance(r.claim.TTL)", new: "took >= 1000*r.claim.TTL",
		test: "^TestR11R14R15R16R18_MajorityTooLate$"},
	{name: "late renewals are accepted by the simulated kernel", file: "simulation_test.go",
		old: "state == driver.Held && now < hd.deadline && now < rstart.Add(validity(c.TTL))",
		new: "state == driver.Held",
		equivalent: "A majority that has renewed a claim still had it then, so nobody else had one, and keeps it for the TTL that the simulated " +
			"kernel counts from before it asked. No two hold the key. That a lock never becomes valid again after its deadline is a promise of " +
			"the real kernel, which simulate checks, with a mutant of its own."},
	{name: "believes doubtful notices", file: "wait.go",
		old:  "n.Kind != driver.Granted || v.doubtful || !v.queued",
		new:  "n.Kind != driver.Granted || !v.queued",
		test: "^TestR1_LateNoticesAreNoGrant$"},
	{name: "believes notices of nodes where it does not wait", file: "wait.go",
		old: "n.Kind != driver.Granted || v.doubtful || !v.queued",
		new: "n.Kind != driver.Granted || v.doubtful",
		equivalent: "A vote from a notice lasts until present. For a node where the claim is not known to wait that is over when its last request " +
			"began, so before what the caller was promised, and the vote does not count. If the node then answers that the claim waits there, and " +
			"there is no doubt, the grant was made after that answer, or the answer would have been Held: it lasts. A node that was restarted in " +
			"between answers later than a presence, so in doubt. Until then the vote is worth what a hint is."},
	{name: "a minority is a majority", file: "quorum.go", old: "len(backends)/2 + 1",
		new: "(len(backends)+1)/2", test: "^TestEveryNumberOfNodes$"},
	{name: "keeps a minority of grants", file: "wait.go",
		old: "\tcase w.due:\n\t\tw.due = false\n\t\treturn q.retreatLocked(r, some)\n", new: "",
		test: "^TestR24_WaitersLetGo$"},
	{name: "lets calls for a key overtake each other", file: "internal/node/call.go",
		old: "; c.key.busy.Has(i) {", new: "; i < 0 {",
		test: "^TestCallsOfOneKeyDoNotOverlap$"},
	{name: "readers take a minority", file: "acquire.go",
		old: "\tcase t.held < q.need && t.answered >= q.need:",
		new: "\tcase r.claim.Shared && t.held > 0 && t.held < q.need:\n" +
			"\t\ttoken, _, _ := r.token()\n\t\tr.mu.Unlock()\n\t\tq.gained(r, token)\n" +
			"\t\treturn driver.Result{State: driver.Held, Token: token}, nil\n" +
			"\tcase t.held < q.need && t.answered >= q.need:",
		plan: "shared", seen: 1},
	{name: "readers' tokens are not acknowledged", file: "acquire.go", old: "if acks < q.need {",
		new: "if acks < q.need && !r.claim.Shared {", plan: "shared", seen: 16},
	{name: "an exclusive acquisition counts nodes where it only shares", file: "acquire.go",
		old: "return driver.Result{State: driver.Busy, Holder: claim.Owner}, nil",
		new: "claim.Shared = true", plan: "shared", seen: 1},
	{name: "asks nodes alone for what it shares", file: "acquire.go",
		old: "!claim.Shared && q.sharesAlready(&claim)", new: "false",
		test: "^TestSharerIsNotGrantedTheKeyAlone$"},
	{name: "counts a Downgrade after one node", file: "renew.go", old: "case t.held >= t.need:",
		new: "case t.held >= t.need || b.claims[k].Shared && t.held > 0:", plan: "shared",
		seen: 3},
	{name: "heals readers as writers", file: "heal.go",
		old: "claim.Shared = claim.Shared || r.shared;", new: "claim.Shared = false;",
		plan: "rolling", seen: 1},
	{name: "heals readers behind those who wait", file: "heal.go",
		old: "claim.Queue, claim.Ticket = true, 1", new: "_ = claim",
		test: "^TestHealingComesBeforeAWaitingWriter$"},
	{name: "forgets that a claim was downgraded", file: "share.go",
		old: "r.shared = r.shared || claim.Shared", new: "_ = r",
		test: "^TestHealingPutsReadersBack$"},
	{name: "takes a node that was left out for one that never held the claim", file: "round.go",
		old: "o.result.State = r.record.history.Gone(i)", new: "",
		test: "^TestReleaseCountsWhatItLeftPending$"},
	{name: "takes every node without the claim for one that held it", file: "internal/node/history.go",
		old: "case h.freed.Has(i):", new: "case true:", plan: "contended", seen: 1},
	{name: "takes a release that waited for one of nothing", file: "internal/node/history.go",
		old: "\t\tr.State = h.found(i, r.State)\n", new: "",
		test: "^TestReleaseCountsWhatItLeftPending$"},
	{name: "believes a node that has left a release unanswered", file: "internal/node/history.go",
		old: "if Maybe(err) {\n\t\t\th.unheard", new: "if false {\n\t\t\th.unheard",
		test: "^TestReleaseAfterOneWithoutAnAnswer$"},
	{name: "owes releases to a node that is never asked", file: "round.go",
		old: "p.progress != answered && !driver.Permanent(err)", new: "p.progress != answered",
		test: "^TestR10_SameServerTwice$"},
	{name: "takes a release of an earlier hold for one of this", file: "internal/node/history.go",
		old: "h.over && c.ends != h.ends", new: "false",
		test: "^TestReleaseDoesNotCountThatOfAnEarlierAttempt$"},
	{name: "forgets what a release of an earlier hold has ended", file: "internal/node/history.go",
		old:  "if r.State == driver.Held {\n\t\t\th.unheard",
		new:  "if false {\n\t\t\th.unheard",
		test: "^TestReleaseAfterAnEarlierAttemptThatHangs$"},
	{name: "believes a node that has answered a later call after the end",
		file: "internal/node/history.go", old: "\treturn r, err, false\n}",
		new:  "\tif err == nil {\n\t\th.unheard &^= Only(i)\n\t}\n\treturn r, err, false\n}",
		test: "^TestReleaseAfterWhichAnAttemptIsRefused$"},
	{name: "never forgets a release that had no answer", file: "internal/node/history.go",
		old: "\th.unheard &= h.ending\n", new: "",
		test: "^TestWhatAReleaseSaysAfterEarlierCalls$", in: "./internal/node"},
	{name: "forgets a release that had no answer when the claim ends",
		file: "internal/node/history.go", old: "h.unheard &= h.ending", new: "h.unheard = 0",
		test: "^TestWhatAReleaseSaysAfterEarlierCalls$", in: "./internal/node"},
	{name: "counts what a release has ended before the claim ended",
		file: "internal/node/history.go", old: "\th.freed = 0\n", new: "",
		test: "^TestWhatAReleaseSaysAfterEarlierCalls$", in: "./internal/node"},
	{name: "takes a release for one of an earlier hold when the claim was asked for since",
		file: "internal/node/history.go", old: "h.over && c.ends != h.ends",
		new:  "c.ends != h.ends",
		test: "^TestWhatAReleaseSaysAfterEarlierCalls$", in: "./internal/node"},
	{name: "believes no node whose release was not made", file: "round.go",
		old:  "case err == nil: // also of a release that was not made, ",
		new:  "case err == nil && !c.Unmade(): //",
		test: "^TestReleaseWhereTheClaimNeverArrived$"},
	{name: "asks all nodes that are down for each release", file: "round.go",
		old:  "case t.leftOut > 0 && t.answered+t.asked < need:\n\t\treturn false, true\n\tdefault:",
		new:  "case t.leftOut > 0:\n\t\treturn false, true\n\tdefault:",
		test: "^TestReleaseSparesANodeThatIsDown$"},
	{name: "takes one node that hangs for one that lost the claim", file: "release.go",
		old: "t.lost+t.busy <= len(q.nodes)-q.need &&", new: "t.lost+t.busy < len(q.nodes)-q.need &&",
		test: "^TestReleaseThatTooFewCanTell$"},
	{name: "release forgets only exclusive claims", file: "release.go",
		old:  "return q.begin(node.Releasing, claim, clock.Now())",
		new:  "if claim.Shared {\n\t\tclaim.Owner += \"?\"\n\t}\n\treturn q.begin(node.Releasing, claim, clock.Now())",
		plan: "shared", seen: 1},
}

// TestMutants breaks the quorum in one place after the other, and has a test notice it, or the
// simulation: in at most HOLDFAST_HISTORIES histories, or 100 times as many as it took last if that
// is not set.
func TestMutants(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			histories := cmp.Or(os.Getenv("HOLDFAST_HISTORIES"), strconv.Itoa(100*m.seen))
			test := cmp.Or(m.test, "^TestSimulation$")
			if m.equivalent != "" {
				t.Log(m.equivalent)
				return
			}
			c := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-timeout=60m", "-run",
				test, cmp.Or(m.in, "."))
			c.Env = append(os.Environ(), "HOLDFAST_HISTORIES="+histories, "HOLDFAST_SEED=1",
				"HOLDFAST_PLAN="+m.plan)
			out, err := c.CombinedOutput()
			text := string(out)
			switch {
			case err == nil:
				t.Errorf("no test fails with this mutant:\n%s", text)
			case strings.Contains(text, "[build failed]") ||
				strings.Contains(text, "[setup failed]"):
				t.Errorf("the mutant does not build:\n%s", text)
			default:
				t.Log(firstLines(text, 6))
			}
		})
	}
}

// overlay writes the broken file, and what go build wants to know of it.
func (m *mutation) overlay(t *testing.T) string {
	dir := t.TempDir()
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), m.old); n != 1 {
		t.Fatalf(
			"this is %d times in %s, want once: the code has changed, and the mutation has to\n%s",
			n, m.file, m.old)
	}
	broken := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(broken, []byte(strings.Replace(string(data), m.old, m.new, 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	description, err := json.Marshal(map[string]any{"Replace": map[string]string{original: broken}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, description, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// firstLines returns the first n lines of text that say what was violated.
func firstLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, ": ") && len(lines) < n {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
