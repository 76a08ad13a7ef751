package pghold

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// listPage is how many parties List asks for at once.
const listPage = 1000

// listStatement finds the holders of a page of keys behind $2.
const listStatement = `
WITH at AS MATERIALIZED (SELECT clock_timestamp() AS now), parties AS (
	SELECT l.key, 0 AS kind, l.owner, l.token, l.expires FROM holdfast.locks AS l, at
		WHERE l.owner IS NOT NULL AND l.expires > at.now
	UNION ALL
	SELECT s.key, 1, s.owner, s.token, s.expires FROM holdfast.sharers AS s, at
		WHERE s.expires > at.now
	UNION ALL
	SELECT DISTINCT w.key, 2, ''::bytea, 0::bigint, at.now FROM holdfast.waiters AS w, at
		WHERE w.until > at.now
), page AS (
	SELECT DISTINCT key FROM parties WHERE key >= $1::bytea AND key > $2::bytea
		AND substring(key FROM 1 FOR length($1::bytea)) = $1::bytea ORDER BY key LIMIT $3::bigint
)
SELECT encode(p.key, 'hex'), p.kind, encode(p.owner, 'hex'), p.token, 0::bigint AS ticket,
	(extract(epoch FROM p.expires - at.now) * 1000000)::bigint AS remaining
FROM parties AS p JOIN page USING (key), at ORDER BY p.key, p.kind, p.expires, p.owner`

// inspectStatement finds who holds a key, shares it, or waits for it.
const inspectStatement = `
WITH at AS MATERIALIZED (SELECT clock_timestamp() AS now), parties AS (
	SELECT l.key, 0 AS kind, l.owner, l.token, 0::bigint AS ticket, l.expires
		FROM holdfast.locks AS l, at
		WHERE l.key = $1::bytea AND l.owner IS NOT NULL AND l.expires > at.now
	UNION ALL
	SELECT s.key, 1, s.owner, s.token, 0::bigint, s.expires FROM holdfast.sharers AS s, at
		WHERE s.key = $1::bytea AND s.expires > at.now
	UNION ALL
	SELECT w.key, 2, w.owner, 0::bigint, w.ticket, w.until FROM holdfast.waiters AS w, at
		WHERE w.key = $1::bytea AND w.until > at.now
)
SELECT encode(p.key, 'hex'), p.kind, encode(p.owner, 'hex'), p.token, p.ticket,
	(extract(epoch FROM p.expires - at.now) * 1000000)::bigint AS remaining
FROM parties AS p, at ORDER BY p.kind, p.ticket, CASE WHEN p.kind = 1 THEN p.expires END, p.owner`

// The kinds of a party.
const (
	holds = iota
	shares
	waits
)

// Inspect describes one key, as driver.Inspector says, in one snapshot. ctx bounds the wait. It
// fails with ErrUnavailable.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	entries, err := aside(ctx, b, false, func(ctx context.Context) ([]driver.Entry, error) {
		return b.look(ctx, inspectStatement, []byte(key))
	})
	if err != nil || len(entries) == 0 {
		return driver.Entry{Key: key}, err
	}
	return entries[0], nil
}

// List yields every key with the prefix that is held or waited for, as driver.Inspector says, in
// the order of the keys. Each thousand of them is a snapshot. ctx ends the iteration with an error.
// It fails with ErrUnavailable.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for last := ""; ; {
			page, err := aside(ctx, b, false, func(ctx context.Context) ([]driver.Entry, error) {
				return b.look(ctx, listStatement, []byte(prefix), []byte(last), int64(listPage))
			})
			if err != nil {
				yield(driver.Entry{}, err)
				return
			}
			driver.Answered(ctx)
			for _, e := range page {
				e.Waiters = nil
				if !yield(e, nil) {
					return
				}
				last = e.Key
			}
			if len(page) < listPage {
				return
			}
		}
	}
}

// look reads parties into entries. Those of one key come one after the other.
func (b *Backend) look(ctx context.Context, statement string,
	args ...any) (entries []driver.Entry, err error) {
	err = b.query(ctx, false, statement, args, func(scan func(...any) error) error {
		var key, owner unhexed
		var kind, token, ticket, remaining int64
		if err := scan(&key, &kind, &owner, &token, &ticket, &remaining); err != nil {
			return err
		}
		if n := len(entries); n == 0 || entries[n-1].Key != string(key) {
			entries = append(entries, driver.Entry{Key: string(key)})
		}
		e := &entries[len(entries)-1]
		party := driver.Party{Owner: string(owner), Token: driver.Token(token),
			ExpiresIn: span(remaining)}
		switch kind {
		case holds:
			e.Holder = party
		case shares:
			e.Sharers = append(e.Sharers, party)
		case waits:
			e.Waiters = append(e.Waiters, party)
		}
		return nil
	})
	return entries, err
}
