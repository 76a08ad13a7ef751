package stores

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// bucket is the bucket with all objects.
const bucket = "counters"

// s3Store has a counter in an object, in its first line; the guard's stamp is the second. Twins
// have one line.
type s3Store struct {
	base   *http.Transport
	client *s3.Client
	guard  s3fence.Guard
}

func openS3(at job.Stores) (Store, error) {
	base := new(http.Transport)
	client := s3.New(s3.Options{
		BaseEndpoint: &at.S3.URL, UsePathStyle: true, Region: at.S3.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: at.S3.Key, SecretAccessKey: at.S3.Secret}, nil
		}),
		HTTPClient: &http.Client{Transport: base},
		Retryer:    aws.NopRetryer{}, // it must not repeat a write that may have been done
	})
	return s3Store{base, client,
		s3fence.Guard{Client: client, Bucket: bucket, Timeout: bound}}, nil
}

func (s s3Store) twin(key string) string { return "twins/" + key }

func (s s3Store) Create(ctx context.Context, keys []string) error {
	if _, err := s.client.CreateBucket(ctx,
		&s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		return err
	}
	for _, key := range keys {
		for _, name := range []string{key, s.twin(key)} {
			if err := s.put(ctx, name, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// Enter writes what is there. If that is not the version that the guard saw, the store refuses.
func (s s3Store) Enter(ctx context.Context, key string, token fence.Token) (value uint64,
	err error) {
	err = s.guard.Put(ctx, key, token, func(stamp string) ([]byte, error) {
		var err error
		value, err = s.Get(ctx, key)
		return lines(value, stamp), err
	})
	return value, err
}

func (s s3Store) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	return s.guard.Put(ctx, key, token, func(stamp string) ([]byte, error) {
		return lines(value, stamp), nil
	})
}

func lines(value uint64, stamp string) []byte { return fmt.Appendf(nil, "%d\n%s\n", value, stamp) }

func (s s3Store) Get(ctx context.Context, key string) (uint64, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &key})
	if err != nil {
		return 0, err
	}
	defer out.Body.Close()
	all, err := io.ReadAll(out.Body)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(all), "\n")
	return strconv.ParseUint(first, 10, 64)
}

func (s s3Store) Twin(ctx context.Context, key string) (uint64, error) {
	return s.Get(ctx, s.twin(key))
}

func (s s3Store) SetTwin(ctx context.Context, key string, value uint64) error {
	return s.put(ctx, s.twin(key), value)
}

func (s s3Store) put(ctx context.Context, name string, value uint64) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &name,
		Body: bytes.NewReader([]byte(text(value)))})
	return err
}

func (s s3Store) Close() error {
	s.base.CloseIdleConnections()
	return nil
}
