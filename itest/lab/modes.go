package lab

import "time"

// Promises are the modes in which every promise has to hold, whatever the nemesis does: it breaks nothing that the documentation says the
// promises rest on.
var Promises = []Config{
	{Nodes: 1, Persistence: Always},
	{Nodes: 3, Persistence: Memory, Guard: 2 * time.Second},
	{Nodes: 5, Persistence: EverySec, Guard: 2 * time.Second},
	{Nodes: 3, Persistence: Always, Guard: 2 * time.Second, Skew: time.Hour},
}

// Limits are the modes in which the nemesis also breaks what the documentation says that exclusion rests on. Two holders are to be
// expected there, and tokens have to hold all the same.
var Limits = []Config{
	{Nodes: 1, Persistence: Memory, Limits: true},
	{Nodes: 1, Persistence: EverySec, Limits: true},
	{Nodes: 3, Persistence: Memory, Guard: 2 * time.Second, Limits: true},
	{Nodes: 5, Persistence: EverySec, Guard: 2 * time.Second, Limits: true},
}

// complete fills in what is not set.
func (c *Config) complete() {
	set := func(field *time.Duration, to time.Duration) {
		if *field == 0 {
			*field = to
		}
	}
	set(&c.TTL, time.Second)
	set(&c.Wait, 6*c.TTL)
	set(&c.Work, c.TTL/20)
	for field, to := range map[*int]int{&c.Clients: 4, &c.Workers: 6, &c.Keys: 8} {
		if *field == 0 {
			*field = to
		}
	}
}
