package withcontrollerruntime

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// gatedManager starts no runnable after the end of its base. A manager that is told to end while it
// starts still starts all that were added, the leader's too, with contexts that have ended.
type gatedManager struct {
	manager.Manager
	base *base
}

func (m gatedManager) Add(r manager.Runnable) error {
	g := gated{r, m.base}
	switch r := r.(type) {
	case *manager.Server, webhook.Server:
		return m.Manager.Add(r) // a manager knows them by these types
	case cacher:
		return m.Manager.Add(gatedCacher{g, r})
	case warmer:
		return m.Manager.Add(struct {
			gated
			warmer
		}{g, r})
	}
	return m.Manager.Add(g)
}

// What else a manager asks a runnable for.
type (
	cacher interface{ GetCache() cache.Cache } // one that was started with the manager
	warmer interface{ Warmup(context.Context) error }
)

// gated is a runnable of a gatedManager.
type gated struct {
	manager.Runnable
	base *base
}

func (g gated) Start(ctx context.Context) error {
	if g.base.Err() != nil {
		return nil
	}
	return g.Runnable.Start(ctx)
}

func (g gated) NeedLeaderElection() bool {
	l, ok := g.Runnable.(manager.LeaderElectionRunnable)
	return !ok || l.NeedLeaderElection()
}

// gatedCacher is what has a cache of its own, such as a second cluster.
type gatedCacher struct {
	gated
	cacher
}

func (g gatedCacher) GetCache() cache.Cache { return &waitingCache{g.cacher.GetCache(), g.base} }

// waitingCache does not wait for anything after its end. A manager that starts waits for its cache
// to be filled, or for ever: it does not look whether that has failed, and turns round on its
// context without a pause.
type waitingCache struct {
	cache.Cache
	base *base
}

// WaitForCacheSync also returns true if the context of all that could use the cache has ended.
func (c *waitingCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || c.base.Err() != nil
}

var errAlone = invalid("health probes, profiles and webhooks would be served by the leader " +
	"alone: put them into a manager of their own, which runs always, or use Elect")

// noWebhooks fails when the manager starts. A manager starts its server of webhooks if somebody has
// asked for it, as what registers a webhook does.
type noWebhooks struct{ webhook.Server }

func (noWebhooks) Start(context.Context) error { return errAlone }
