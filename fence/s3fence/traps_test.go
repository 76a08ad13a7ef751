//go:build unix

package s3fence_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
)

// unstamped leaves the stamp out of the content, so that the same value has the same ETag again.
func unstamped(client s3fence.Client) s3fence.Client {
	return bent{Client: client, before: func(in *s3.PutObjectInput) {
		in.Body = strings.NewReader("the same")
	}}
}

// TestTheSameContentAgain pauses a writer with token 33 after its look, while one with token 34
// writes the content that was there already. Without the stamp the first writer then overwrites it,
// and its token.
func TestTheSameContentAgain(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	bucket := newBucket(t, client)
	for name, c := range map[string]struct {
		bend func(s3fence.Client) s3fence.Client
		want error
	}{
		"with the stamp":    {sound, fence.ErrStale},
		"without the stamp": {unstamped, nil},
	} {
		t.Run(name, func(t *testing.T) {
			guard := s3fence.Guard{Client: c.bend(client), Bucket: bucket}
			key := name
			write := func(guard s3fence.Guard, token fence.Token) error {
				return guard.Put(t.Context(), key, token, stamped("the same"))
			}
			if err := write(guard, 32); err != nil {
				t.Fatal(err)
			}
			paused := guard
			overtake := sync.OnceFunc(func() {
				if err := write(guard, 34); err != nil {
					t.Error(err)
				}
			})
			paused.Client = bent{Client: guard.Client, before: func(*s3.PutObjectInput) {
				overtake()
			}}
			for attempt, g := range []s3fence.Guard{paused, guard} {
				if err := write(g, 33); !errors.Is(err, c.want) {
					t.Errorf("attempt %d: Put with token 33 = %v; want %v", attempt, err, c.want)
				}
			}
			_, metadata, err := get(t.Context(), client, bucket, key)
			want := "34-"
			if c.want == nil {
				want = "33-" // which the stamp prevents
			}
			if !strings.HasPrefix(metadata[s3fence.MetadataKey], want) || err != nil {
				t.Errorf("the stamp is %q, %v; want %s...", metadata[s3fence.MetadataKey], err,
					want)
			}
		})
	}
}

// TestTheStoreDecidesAndWritesInOneStep sees that of many writes with the same condition one is
// executed. The other tests rest on it.
func TestTheStoreDecidesAndWritesInOneStep(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	bucket := newBucket(t, client)
	const rounds, writers = 10, 8
	etag := ""
	for round := range rounds {
		var wg sync.WaitGroup
		start := make(chan struct{})
		codes, etags := make([]int, writers), make([]string, writers)
		for i := range writers {
			in := &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("key"),
				Body: strings.NewReader(fmt.Sprint(round, i))}
			if in.IfMatch = &etag; etag == "" {
				in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				<-start
				out, err := client.PutObject(t.Context(), in)
				if codes[i] = code(err); err == nil {
					etags[i] = *out.ETag
				}
			}()
		}
		close(start)
		wg.Wait()
		executed := 0
		for i, code := range codes {
			if etags[i] != "" {
				executed++
				etag = etags[i]
			} else if code != http.StatusPreconditionFailed {
				t.Errorf("round %d: a write is refused with %d; want 412", round, code)
			}
		}
		if executed != 1 {
			t.Fatalf("round %d: %d of %d writes are executed; want one", round, executed, writers)
		}
	}
}

// TestALookAtTwoVersions: the answer to a look is put together from two versions, with the ETag of
// the newer one and the metadata of the older one. Gateways to files do that.
func TestALookAtTwoVersions(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	bucket := newBucket(t, client)
	guard := s3fence.Guard{Client: client, Bucket: bucket}
	if err := guard.Put(t.Context(), "key", 1, stamped("first")); err != nil {
		t.Fatal(err)
	}
	_, old, err := get(t.Context(), client, bucket, "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Put(t.Context(), "key", 3, stamped("newer")); err != nil {
		t.Fatal(err)
	}
	looks := 0
	mixed := s3fence.Guard{Bucket: bucket, Client: bent{Client: client,
		look: func(out *s3.HeadObjectOutput) {
			if looks++; looks == 1 {
				out.Metadata = maps.Clone(old)
			}
		}}}
	if err := mixed.Put(t.Context(), "key", 2, stamped("older")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Put with token 2 after token 3 = %v; want ErrStale", err)
	}
	content, _, err := get(t.Context(), client, bucket, "key")
	if got := valueOf(content); err != nil || got != "newer" {
		t.Errorf("the value is %q, %v; want that of token 3", got, err)
	}
}

// TestADeletedObjectHasForgottenItsToken shows why one has to write a tombstone.
func TestADeletedObjectHasForgottenItsToken(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	bucket := newBucket(t, client)
	guard := s3fence.Guard{Client: client, Bucket: bucket}
	for _, key := range []string{"deleted", "tombstone"} {
		if err := guard.Put(t.Context(), key, 5, stamped("a")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket,
		Key: aws.String("deleted")}); err != nil {
		t.Fatal(err)
	}
	if err := guard.Put(t.Context(), "deleted", 4, stamped("b")); err != nil {
		t.Errorf("Put after the object was deleted = %v", err)
	}
	if err := guard.Put(t.Context(), "tombstone", 5, stamped("")); err != nil {
		t.Fatal(err)
	}
	if err := guard.Put(t.Context(), "tombstone", 4, stamped("b")); !errors.Is(err,
		fence.ErrStale) {
		t.Errorf("Put with an older token on a tombstone = %v; want ErrStale", err)
	}
}

// TestCheckOfARealStore finds nothing wrong on the gateway, even twice, and finds that a bucket is
// missing.
func TestCheckOfARealStore(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	guard := s3fence.Guard{Client: client, Bucket: newBucket(t, client)}
	for range 2 {
		if err := guard.Check(t.Context(), "check"); err != nil {
			t.Error(err)
		}
	}
	guard.Bucket = "missing"
	if err := guard.Check(t.Context(), "check"); !errors.Is(err, fence.ErrUnavailable) ||
		!strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("Check of a bucket that is missing = %v; want ErrUnavailable, and why", err)
	}
}
