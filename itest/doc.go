// Package itest proves the promises on real servers: its tests run the fault laboratory. Clients
// take keys alone and together with others, as writers and readers, let readers in by a Downgrade,
// take several keys at once, and take permits of a semaphore of which they know different numbers,
// while servers, the network and the clients themselves are broken. The servers are Redis, alone,
// in a quorum, a Cluster or behind a Sentinel; a cluster of etcd; a PostgreSQL with a standby; or
// an ensemble of ZooKeeper.
//
// Its folders:
//
//	job        what a client process (worker) is told to do
//	worker     the client process, which uses the library as a service would
//	counters   what the locks protect: a counter for each key, guarded and not
//	stores     every kind of store that has a guard, each with a twin without one
//	lab        servers, clients, the network between them, and the nemesis that breaks all of it
//	modeltrace what clients and servers said to each other, in the words of the models
//	history    what happened
//	check      whether promises were kept, and whether what was said follows the model of the tokens
//	with       the modules of the folder with, while their server freezes, forgets and dies
//	report     the same for people to read
//	mutants    ways to break the library, each of which a check must notice
//	torture    the command that runs all modes and writes the reports in docs
//	requirements   the list of requirements with their tests
//
// make itest runs it for some minutes, make mutants shows that the checks can fail, and make
// torture runs it for as long as one likes.
package itest
