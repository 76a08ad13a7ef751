package protocol

// sharedValue is the value of a lock that several share, instead of an owner value. The scripts
// have it too. Other clients of the key find it taken.
const sharedValue = Namespace + "shared"

// Shares reports that shared claims are granted side by side, as [driver.Sharer] describes: true.
//
// Each shared claim costs a script, even without contention. Exclusive claims cost as much as
// without shared ones.
func (b *Backend) Shares() bool { return true }
