package s3fence_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
)

// These stand for what a service has.
var (
	ctx    = context.Background()
	config aws.Config // of the SDK
	locker *holdfast.Locker
)

// The store refuses the write if a later holder has written, even if this process was paused for a
// minute after it had looked at its lock. Readers take no notice of the member with the stamp.
func ExampleGuard_Put() {
	guard := s3fence.Guard{Client: s3.NewFromConfig(config), Bucket: "reports"}
	type report struct {
		Stamp string `json:"stamp"`
		Total int    `json:"total"`
	}

	err := locker.Do(ctx, "daily.json", func(ctx context.Context, lock *holdfast.Lock) error {
		return guard.Put(ctx, "daily.json", lock.Token(), func(stamp string) ([]byte, error) {
			return json.Marshal(report{Stamp: stamp, Total: 80})
		}, func(in *s3.PutObjectInput) {
			in.ContentType = aws.String("application/json")
		})
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has taken over: ", err)
	}
}

// What is compressed has the stamp in its header, which is not.
func ExampleGuard_Put_compressed() {
	guard := s3fence.Guard{Client: s3.NewFromConfig(config), Bucket: "reports"}
	var token fence.Token // of the lock

	err := guard.Put(ctx, "daily.csv.gz", token, func(stamp string) ([]byte, error) {
		var file bytes.Buffer
		w := gzip.NewWriter(&file)
		w.Comment = stamp
		if _, err := w.Write([]byte("total\n80\n")); err != nil {
			return nil, err
		}
		err := w.Close()
		return file.Bytes(), err
	})
	if err != nil {
		log.Print(err)
	}
}

// A store that ignores conditions would guard nothing.
func ExampleGuard_Check() {
	guard := s3fence.Guard{Client: s3.NewFromConfig(config), Bucket: "reports"}

	if err := guard.Check(ctx, "fence-check"); err != nil {
		log.Fatal(err)
	}
}
