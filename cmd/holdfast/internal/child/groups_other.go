//go:build !linux

package child

// TakeOrphans does nothing here: processes that leave the process group are out of reach.
func TakeOrphans() error { return nil }

func otherGroups(...int) []int { return nil }

// groupRuns returns false: it cannot tell on these systems.
func groupRuns(int) bool { return false }
