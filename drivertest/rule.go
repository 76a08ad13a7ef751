package drivertest

import "slices"

// rule is one promise of the contract, and how to see whether a backend keeps it.
type rule struct {
	name  string
	needs feature // all of them
	lacks feature // none of them
	check func(*suite)
}

// feature is a set of capabilities.
type feature uint32

const (
	notify feature = 1 << iota
	inspect
	checker
	guard
	identify
	member
	share
	queue
	holder
	expiresIn
	expiry
	outlives
	lose
	cutReply
	freeze
	forget
	killHolder
)

func (c Capabilities) features() feature {
	var have feature
	for f, has := range map[feature]bool{
		notify: c.Notify, inspect: c.Inspect, checker: c.Check, guard: c.Guard,
		identify: c.Identify, member: c.Member, share: c.Share,
		queue: c.Queue, holder: c.Holder, expiresIn: c.ExpiresIn, expiry: c.Expiry,
		outlives: c.Outlives,
		lose:     c.CanLose, cutReply: c.CanCutReply, freeze: c.CanFreeze, forget: c.CanForget,
		killHolder: c.CanKillHolder,
	} {
		if has {
			have |= f
		}
	}
	return have
}

func (r rule) applies(have feature) bool { return have&r.needs == r.needs && have&r.lacks == 0 }

// rules returns all rules. Names carry the requirement that they show, where there is one.
func rules() []rule {
	return slices.Concat(
		capabilityRules,
		exclusionRules,
		releaseRules,
		renewalRules,
		tokenRules,
		queueRules,
		handoffRules,
		shareRules,
		noticeRules,
		unknownRules,
		contextRules,
		keyRules,
		inspectionRules,
		guardRules,
		memberRules,
		closeRules,
		processRules,
		loadRules,
	)
}
