package withcontrollerruntime

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// Run campaigns until ctx ends, as election.Election.Run does, and returns its error. For each term
// it makes a manager, has setup add controllers to it, and starts it; at the end of the term it
// waits until the manager has shut down.
//
// An error of manager.New, of setup or of the manager ends the term: it is told to
// election.WithOnError, and after a pause Run campaigns again, or returns it, with
// election.WithStopOnError.
//
// A controller or another runnable is not started any more after the end of the term.
//
// BaseContext and NewCache of the options are wrapped, GracefulShutdownTimeout, WebhookServer and
// Controller.SkipNameValidation set. Run fails with holdfast.ErrInvalid if an argument is nil, or
// an option is set that decides who leads or that each process needs: LeaderElection,
// LeaderElectionResourceLockInterface, HealthProbeBindAddress, PprofBindAddress, WebhookServer. The
// term ends with that error if setup registers a webhook.
func Run(ctx context.Context, e *election.Election, config *rest.Config, options manager.Options,
	setup func(mgr manager.Manager, term election.Term) error) error {
	switch {
	case e == nil:
		return invalid("election is nil: make one with election.New")
	case config == nil || setup == nil:
		return invalid("configuration or function is nil for %q: give both", e.Name())
	}
	if err := checkOptions(options); err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		base := newBase(options.BaseContext)
		var following sync.WaitGroup
		defer following.Wait()
		defer base.end(nil)
		base.token = func() (holdfast.Token, bool) { return term.Token(), true }
		mgr, err := manager.New(config, forTerm(options, base))
		if err != nil {
			return fmt.Errorf("withcontrollerruntime: make the manager for %v: %w", term, err)
		}
		if err := setup(gatedManager{mgr, base}, term); err != nil {
			return fmt.Errorf("withcontrollerruntime: set up the manager for %v: %w", term, err)
		}
		run, stop := context.WithCancel(context.WithoutCancel(ctx))
		following.Go(func() { base.follow(ctx, term, mgr.Elected(), stop) })
		if err := mgr.Start(run); err != nil {
			return fmt.Errorf("withcontrollerruntime: run the manager for %v: %w", term, err)
		}
		return nil
	})
}

// checkOptions returns an error for an option that has no place in a term.
func checkOptions(o manager.Options) error {
	isSet := func(address string) bool { return address != "" && address != "0" }
	switch {
	case o.LeaderElection || o.LeaderElectionResourceLockInterface != nil:
		return invalid("the manager has an election of its own: leave LeaderElection and " +
			"LeaderElectionResourceLockInterface out, or use Elect")
	case isSet(o.HealthProbeBindAddress) || isSet(o.PprofBindAddress) || o.WebhookServer != nil:
		return errAlone
	}
	return nil
}

// forTerm returns the options for the manager of one term.
func forTerm(o manager.Options, b *base) manager.Options {
	o.BaseContext = func() context.Context { return b }
	forever := noTimeout
	o.GracefulShutdownTimeout = &forever // the election has a grace
	skip := true
	o.Controller.SkipNameValidation = &skip // the names of the terms before
	o.WebhookServer = noWebhooks{webhook.NewServer(webhook.Options{})}
	newCache := o.NewCache
	if newCache == nil {
		newCache = cache.New
	}
	o.NewCache = func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		c, err := newCache(config, options)
		if err != nil {
			return nil, err
		}
		return &waitingCache{c, b}, nil
	}
	return o
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withcontrollerruntime: %w: "+format,
		append([]any{holdfast.ErrInvalid}, args...)...)
}
