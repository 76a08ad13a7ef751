// Package otelhold tells OpenTelemetry what the Lockers of a process do: metrics and spans.
//
//	telemetry, err := otelhold.New(otelhold.WithResource(otelhold.UpTo("/")))
//	locker, err := holdfast.New(backend, holdfast.WithHooks(telemetry.Hooks(0)))
//	defer telemetry.Follow("orders", locker)()
//
// Without [WithMeterProvider] and [WithTracerProvider] it uses the global providers.
//
// # Names
//
// The metrics are those of promhold: Prometheus' rules for names make the same names, types, labels
// and buckets of them. So the alert rules and the dashboard of the directory deploy serve both.
// This is why attributes have short names without a namespace. If a log of holdfast.WithLogger and
// a span both have a value, it has the same name in both: key, token, held, reason, margin, error.
// Durations are in seconds.
//
// A key is no attribute of a metric, because a key for each invoice would be a series for each
// invoice. The function of [WithResource] maps keys to resources, which are the values of the
// attribute resource. Without it there is one resource, "all". [UpTo] makes "invoice" of
// "invoice/42". Whatever the function returns, there are at most [WithMaxResources] resources;
// further ones count as "other". Spans have the resource as well, and the key only with [WithKeys].
//
// # Metrics
//
// By resource, from what the hooks of the Lockers are told; histograms are in seconds but for the
// margin:
//
//	distributed_lock.wait          histogram  from the call to the grant, of what was granted
//	distributed_lock.failures      counter    acquisitions that failed, by cause: held, timeout,
//	                                          cancelled, unavailable, unknown, closed, invalid,
//	                                          other
//	holdfast.acquisitions          counter    those that succeeded, by kind: exclusive, shared,
//	                                          permit
//	holdfast.handovers             counter    keys passed on within a process, in memory
//	holdfast.waiting_answers       counter    answers of the backend to those who wait: still held
//	holdfast.hold                  histogram  from the grant to the release or the loss
//	holdfast.losses                counter    locks lost, by cause: lease, max_hold, closed
//	holdfast.releases_unconfirmed  counter    releases without an answer, to be repeated
//	holdfast.renewals              counter    by outcome: confirmed, missed, gone, late
//	holdfast.renewal               histogram  from the request for a renewal to its answer
//	holdfast.renewal_margin_ratio  histogram  what was left of the lease when it was renewed
//
// Waiters that give up are no part of distributed_lock.wait: they are failures with the cause
// timeout or cancelled. The cause held is that of a TryAcquire. A lock is lost with its lease if no
// renewal was confirmed in time, or if the backend no longer had the lease; the renewals that found
// this are "late" and "gone". "missed" renewals failed, and the lock was still held. The margin is
// a share of the TTL that [Telemetry.Hooks] was given: in good health a little less than two
// thirds. The first renewal of a lease that the backend's queue handed over is left out: that lease
// is short by design.
//
// Counters of a resource begin at 0 with its first event. Waits, failures and acquisitions are
// recorded with the span of the acquisition, and holds and losses with that of the lock, for
// exemplars.
//
// For each name given to [Telemetry.Follow] (attribute locker), exact at each collection, from the
// Lockers' own counters:
//
//	holdfast.held                  sum        locks held now
//	holdfast.waiting               sum        calls of Acquire that wait now
//
// For each name given to [Telemetry.FollowNodes] (attribute quorum), from quorums (Redlock):
//
//	holdfast.node_state            gauge      1 for the state that the node is in, else 0:
//	                                          unasked, up, down, quarantined, refusing, duplicate
//	holdfast.node_calls            sum        calls that wait for the node
//	holdfast.node_releases_owed    sum        releases that the node has not confirmed yet
//	holdfast.nodes_needed          gauge      how many nodes make a majority
//
// # Spans
//
//	holdfast.acquire    from the call to the grant or the failure, with all waiting. A child of
//	                    the span in the context that Acquire was given. Of several keys at once,
//	                    one for each when all are held, and one for that which could not be had.
//	  resource, key     key with WithKeys
//	  kind, token       of what was granted; slot, if that is a permit
//	  local             granted in memory, by another goroutine
//	  cause, error      of a failure; holder, if the key was held
//	  event waiting     the backend said who holds the key: holder, place in the queue, expires_in
//
//	holdfast.hold       from the grant to the release or the loss. Linked to the span of the
//	                    acquisition and a sibling of it, or its child if the caller has no span.
//	  resource, key, kind, token, slot
//	  event lost                 cause, reason, held
//	  event renewal missed       margin, error; it is tried again
//	  event release unconfirmed  error; it is tried on in the background
//
// All are of the kind internal. The status is an error, with error.type, for a lock that was lost
// and for an acquisition that failed. With the causes held and cancelled it is no error, because
// the caller asked for that answer. Nested acquisitions have no spans.
//
// The span of an acquisition has the first answers to the wait and the last one, 16 in all, without
// those that say nothing new. In a Locker one goroutine asks for all that wait for a key on the
// same terms, so only its span has them. Calls for one key within one span of the caller are not
// told apart.
//
// Without WithKeys, spans have texts of errors only if the backend failed. These are the backend's
// own words, with three dots in place of the key. What is not UTF-8 becomes U+FFFD.
//
// # What they do not say
//
// Spans are made from hooks, after the event. So the calls of an instrumented client of a server
// are siblings of holdfast.acquire, not its children. Still, spans have the times of the events,
// except three that hooks are not told: that of a failure, of an answer to a wait, and of a missed
// renewal. These are as late as the hook, which is much only if the provider blocks. If a process
// does more than hooks can take, events are dropped, the Locker logs that, and counters by resource
// fall short; observed metrics do not. A lock whose release was dropped has no span. If a Locker
// holds more than 10,000 locks at a time whose spans are recorded, the oldest have no span either.
//
// Held and waiting locks are not told apart by resource: give Lockers names instead. Of the calls
// of the backend only renewals are timed, because hooks are told of no others.
package otelhold
