package sqltest_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
)

// noStamp is as long as one.
var noStamp = strings.Repeat("x", 45)

// stamped has the value first.
func stamped(i int, stamp string) string { return strconv.Itoa(i) + "\n" + stamp }

// benchmarkS3 has a gateway whose objects are files of this machine. If there is an object already
// the guard looks twice, and else once.
func benchmarkS3(b *testing.B) {
	const store, beside, bucket = "S3", "`PutObject`", "benchmark"
	ctx := b.Context()
	url := versitytest.Start(b).URL
	client := s3.New(s3.Options{BaseEndpoint: &url, UsePathStyle: true, Region: versitytest.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: versitytest.AccessKey,
				SecretAccessKey: versitytest.Secret}, nil
		})})
	if _, err := client.CreateBucket(ctx,
		&s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		b.Fatal(err)
	}
	// at is a side that writes to the object whose key is key's next result.
	at := func(key func() string, write func(key string, i int) error) side {
		var last string
		return side{func(i int) error {
			last = key()
			return write(last, i)
		}, func() (int, error) {
			out, err := client.GetObject(ctx,
				&s3.GetObjectInput{Bucket: aws.String(bucket), Key: &last})
			if err != nil {
				return 0, err
			}
			defer out.Body.Close()
			content, err := io.ReadAll(out.Body)
			if err != nil {
				return 0, err
			}
			value, _, _ := strings.Cut(string(content), "\n")
			return strconv.Atoi(value)
		}}
	}
	bare := func(key string, i int) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &key,
			Body: strings.NewReader(stamped(i, noStamp))})
		return err
	}
	guard := s3fence.Guard{Client: client, Bucket: bucket}
	guarded := func(key string, i int) error {
		return guard.Put(ctx, key, nextToken(), func(stamp string) ([]byte, error) {
			return []byte(stamped(i, stamp)), nil
		})
	}
	same := func(key string) func() string { return func() string { return key } }
	compare(b, store, "`Put`, an object that is there", beside, at(same("bare"), bare),
		at(same("guarded"), guarded))
	made := 0 // also when -count begins again
	fresh := func() string {
		made++
		return fmt.Sprintf("new-%d", made)
	}
	compare(b, store, "`Put`, a new object", beside, at(fresh, bare), at(fresh, guarded))
}
