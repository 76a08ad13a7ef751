package pghold

import (
	"context"
	"encoding/hex"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

const renewStatement = `SELECT state, n, granted, waiting, remaining, notices FROM holdfast.renew(` +
	`$1::text::bytea[], $2::text::bytea[], $3::text::bigint[], $4::text::bigint[], ` +
	`$5::text::bigint[], $6::text::boolean[], $7::text, $8::bigint, $9::text)`

// renewChunk is how many claims are renewed in one statement. Other calls for these keys wait until
// the statement is done.
const renewChunk = 1000

// Renew extends each claim that still holds its key, as driver.Backend describes, a thousand of
// them in one round trip. ctx bounds the wait, not the requests. Renew fails with ErrUnknown or
// ErrUnavailable for up to a thousand claims. With more, the error of a thousand is in their
// results. A claim that is not allowed has ErrInvalid in its result.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := b.writes(); err != nil {
		return nil, err
	}
	results := make([]driver.Result, len(claims))
	index := make([]int, 0, len(claims)) // of those that are sent
	for i := range claims {
		err := validate(&claims[i])
		if err == nil {
			err = b.underGuard(claims[i].TTL)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		index = append(index, i)
	}
	if len(index) == 0 {
		return results, b.ready(ctx)
	}
	for from := 0; from < len(index); from += renewChunk {
		chunk := index[from:min(from+renewChunk, len(index))]
		answers, err := aside(ctx, b, true, func(ctx context.Context) ([]driver.Result, error) {
			return b.renew(ctx, claims, chunk)
		})
		if err != nil && len(index) <= renewChunk {
			return nil, err
		}
		for at, i := range chunk {
			if results[i].Err = err; err == nil {
				results[i] = answers[at]
			}
		}
	}
	return results, nil
}

// renew renews the claims with these indexes.
func (b *Backend) renew(ctx context.Context, claims []driver.Claim,
	index []int) ([]driver.Result, error) {
	var keys, owners, ttls, tokens, blocks, shared array
	for _, i := range index {
		c := &claims[i]
		keys.bytes(c.Key)
		owners.bytes(c.Owner)
		ttls.number(microseconds(c.TTL))
		tokens.number(int64(c.Token))
		blocks.number(int64(c.Block))
		shared.word(strconv.FormatBool(c.Shared))
	}
	guard, member := b.terms()
	results := make([]driver.Result, len(index))
	for at := range results {
		results[at].State = driver.Lost
	}
	var refusal error
	var told []string
	err := b.query(ctx, true, renewStatement, []any{keys.text(), owners.text(), ttls.text(),
		tokens.text(), blocks.text(), shared.text(), b.id, guard, member},
		func(scan func(...any) error) error {
			var state, notices string
			var n, granted, remaining int64
			var waiting bool
			if err := scan(&state, &n, &granted, &waiting, &remaining, &notices); err != nil {
				return err
			}
			if refusal = b.refusal(state, remaining, notices); refusal == nil {
				results[n-1].State, results[n-1].Token = driver.Held, driver.Token(granted)
				results[n-1].Waiting = waiting
				told = append(told, notices)
			}
			return nil
		})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return nil, err
	}
	for _, notices := range told {
		b.tellAll(notices)
	}
	return results, nil
}

// array is the text of an array as PostgreSQL reads it, so that no driver has to know arrays.
type array []byte

func (a *array) bytes(s string) {
	a.separate()
	*a = append(*a, `"\\x`...)
	*a = hex.AppendEncode(*a, []byte(s))
	*a = append(*a, '"')
}

func (a *array) number(n int64) {
	a.separate()
	*a = strconv.AppendInt(*a, n, 10)
}

func (a *array) word(s string) {
	a.separate()
	*a = append(*a, s...)
}

func (a *array) separate() {
	if len(*a) == 0 {
		*a = append(*a, '{')
	} else {
		*a = append(*a, ',')
	}
}

func (a *array) text() string { return string(*a) + "}" }
