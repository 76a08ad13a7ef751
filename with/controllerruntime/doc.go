// Package withcontrollerruntime has one process of a fleet run the controllers of
// sigs.k8s.io/controller-runtime: the leader, by a lock of Holdfast. No Lease of the cluster is
// needed, so controllers may run outside of it, in several clusters, or beside other programs that
// take the same lock.
//
// [Run] has a manager inside an election, and a new one for each term:
//
//	e, err := election.New(locker, "controllers")
//	err = withcontrollerruntime.Run(ctx, e, config, manager.Options{
//		Metrics: server.Options{BindAddress: "0"},
//	}, func(mgr manager.Manager, term election.Term) error {
//		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconciler)
//	})
//
// [Elect] gives a manager the lock in place of a Lease, by its resourcelock.Interface:
//
//	options, err := withcontrollerruntime.Elect(manager.Options{}, locker, "controllers")
//	mgr, err := manager.New(config, options)
//
// # Which of the two
//
// A manager can be started once, and controller-runtime says that the process must exit when its
// Start has returned. With [Elect] that is so: after a loss the process ends, and is started again.
// In return what needs no leader runs on each process, as controller-runtime means it: webhooks,
// caches, metrics, health probes, and whatever has NeedLeaderElection return false.
//
// With [Run] the process goes on, and campaigns again. Nothing of the manager runs on a standby,
// not even that. So options for it are refused (HealthProbeBindAddress, PprofBindAddress,
// WebhookServer): a standby without a liveness probe would be killed. Put them into a second
// manager that runs always. Caches are filled anew in each term. Controllers of a later term have
// the names of those before, so the check for names used twice is off.
//
// # A lock that is lost
//
// All contexts of the manager's runnables end, those of reconcilers included, with the loss as
// their cause, before anybody else can have the lock. That takes a manager.Options.BaseContext,
// which both functions set. Without it a manager ends the contexts of controllers only after all
// runnables that need no leader have returned, and a LeaderElector notices the loss only when its
// RenewDeadline is over, ten seconds by default. Requests to webhooks have contexts of the HTTP
// server, which do not end with the lock, and no token.
//
// What runs on after that, or in a process that was paused, only a token keeps out: [Token] has
// that of the lock for the stores that a reconciler writes to (package fence). The Kubernetes API
// asks for no token. It refuses an update of an object that another has changed meanwhile, if the
// update has its resourceVersion.
//
// # An end on purpose
//
// The manager shuts down in its own order, and the lock is released when all runnables have
// returned. With [Run] no longer than the election's grace (election.WithGrace), which takes the
// place of GracefulShutdownTimeout; with [Elect] no longer than that. Then their contexts end with
// the lock.
//
// With [Elect], a standby that shuts down still takes the lock if it becomes free before what needs
// no leader has returned, as it would take a Lease. Then it leads until that has returned.
//
// # What a resourcelock.Interface can keep
//
// It is a record with a time, which candidates compare and swap, and no lock: a LeaderElector
// counts the lease by itself, from when it last wrote. The lock that [Elect] gives keeps these
// promises: it counts as written only while the lock is held; it is taken once, and never again
// after a loss, so no elector takes another term for a renewal; and the contexts end with the lock,
// whatever the elector believes. It does not keep these: the manager's Start returns up to
// RenewDeadline and RetryPeriod after a loss, while nothing runs; a standby does not wait in the
// queue of the lock, but asks after each RetryPeriod and up to 2.2 times that; and the record has
// no times. LeaderElectionReleaseOnCancel is set, as the lock is else renewed until the process
// ends.
package withcontrollerruntime
