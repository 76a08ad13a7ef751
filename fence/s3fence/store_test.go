//go:build unix

package s3fence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
)

// connect returns a client of the store at the address.
func connect(url string, options ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, UsePathStyle: true, Region: versitytest.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: versitytest.AccessKey,
				SecretAccessKey: versitytest.Secret}, nil
		}),
	}, options...)
}

// newBucket makes an empty one.
func newBucket(t testing.TB, client *s3.Client) string {
	t.Helper()
	bucket := strings.ToLower(rand.Text())
	if _, err := client.CreateBucket(t.Context(),
		&s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	return bucket
}

// get returns the content of the object and its metadata; both are empty if there is none.
func get(ctx context.Context, client *s3.Client, bucket, key string) (string, map[string]string,
	error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if code(err) == http.StatusNotFound {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	return string(body), out.Metadata, err
}

// code is the status of the answer that err is.
func code(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// keyOf is the key that a resource has on the gateway, whose objects are files: it has a slash now
// and then, since a part of their names has at most 255 bytes.
func keyOf(resource string) string {
	key := []byte(resource)
	for i := 200; i < len(key); i += 200 {
		key[i] = '/'
	}
	return string(key)
}

// harness has each rule in a bucket of its own.
func harness(server versitytest.Server,
	bend func(s3fence.Client) s3fence.Client) fencetest.Harness {
	return fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
		client := connect(server.URL)
		bucket := newBucket(t, client)
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				broken := bend(client)
				if pause != nil {
					once := sync.OnceFunc(pause)
					broken = bent{Client: broken, before: func(*s3.PutObjectInput) { once() }}
				}
				return s3fence.Guard{Client: broken, Bucket: bucket}.Put(ctx, keyOf(resource),
					token, stamped(value))
			},
			Read: func(ctx context.Context, resource string) (string, error) {
				content, _, err := get(ctx, client, bucket, keyOf(resource))
				return valueOf(content), err
			},
			Crash: func(t testing.TB) {
				server.Kill()
				server.Run(t)
			},
		}
	}}
}

func sound(client s3fence.Client) s3fence.Client { return client }

func TestConformance(t *testing.T) {
	fencetest.Run(t, harness(versitytest.Start(t), sound))
}

// unconditional makes the store write, whatever is there.
func unconditional(client s3fence.Client) s3fence.Client {
	return bent{Client: client, before: func(in *s3.PutObjectInput) {
		in.IfMatch, in.IfNoneMatch = nil, nil
	}}
}

// seeing makes looks see another token than that of the object.
func seeing(change func(stamp string) string) func(s3fence.Client) s3fence.Client {
	return func(client s3fence.Client) s3fence.Client {
		return bent{Client: client, look: func(out *s3.HeadObjectOutput) {
			if stamp, ok := out.Metadata[s3fence.MetadataKey]; ok {
				out.Metadata[s3fence.MetadataKey] = change(stamp)
			}
		}}
	}
}

// plus adds to the token of a stamp.
func plus(n int64) func(stamp string) string {
	return func(stamp string) string {
		digits, rest, _ := strings.Cut(stamp, "-")
		token, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return stamp
		}
		return strconv.FormatInt(max(1, token+n), 10) + "-" + rest
	}
}

func TestMutants(t *testing.T) {
	server := versitytest.Start(t)
	for name, m := range map[string]struct {
		bend func(s3fence.Client) s3fence.Client
		red  []string
	}{
		"refuses the same again": {seeing(plus(1)), []string{"Order/AcceptsTheSameAgain"}},
		"accepts the one before": {seeing(plus(-1)), []string{"Order/RefusesSmaller"}},
		"asks for no condition": {unconditional, []string{"Concurrency/OlderThatBeganFirst",
			"Concurrency/OlderThatBeganFirstOnANewResource"}},
		"keeps no token": {func(client s3fence.Client) s3fence.Client {
			return bent{Client: client, before: func(in *s3.PutObjectInput) { in.Metadata = nil }}
		}, []string{"Order/RefusesSmaller", "Order/RefusedIsNotRemembered",
			"Crash/RefusesAfterwards"}},
	} {
		t.Run(name, func(t *testing.T) {
			fencetest.Catches(t, harness(server, m.bend), m.red...)
		})
	}
}
