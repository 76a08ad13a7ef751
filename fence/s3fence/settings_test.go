//go:build unix

package s3fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
)

// TestSettingsThatWouldReplaceTheGuards has callers set what the client would send in place of the
// guard's own stamp and body. The client canonicalizes names of metadata. If two become one, it
// takes the last of a map.
func TestSettingsThatWouldReplaceTheGuards(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	guard := s3fence.Guard{Client: client, Bucket: newBucket(t, client)}
	for range 16 { // the order of maps
		if err := guard.Put(t.Context(), "key", 5, stamped("a"), func(in *s3.PutObjectInput) {
			in.Metadata = map[string]string{"Fencing-Stamp": "1-X-0", "FENCING-STAMP": "2-X-0",
				"author": "me"}
			in.ContentLength = aws.Int64(3)
		}); err != nil {
			t.Fatal(err)
		}
		content, metadata, err := get(t.Context(), client, guard.Bucket, "key")
		if err != nil || !strings.HasSuffix(content, metadata[s3fence.MetadataKey]) ||
			metadata["author"] != "me" {
			t.Fatalf("the content is %q with %v, %v; want the stamp in both", content, metadata,
				err)
		}
	}
}

// TestARefusalOfWhatIsWritten makes the gateway write the object and then refuse a legal hold,
// which the bucket does not support. It must not count as not written.
func TestARefusalOfWhatIsWritten(t *testing.T) {
	client := connect(versitytest.Start(t).URL)
	guard := s3fence.Guard{Client: client, Bucket: newBucket(t, client)}
	err := guard.Put(t.Context(), "key", 5, stamped("a"), func(in *s3.PutObjectInput) {
		in.ObjectLockLegalHoldStatus = types.ObjectLockLegalHoldStatusOn
	})
	content, _, getErr := get(t.Context(), client, guard.Bucket, "key")
	if getErr != nil || valueOf(content) != "a" {
		t.Fatalf("the content is %q, %v; want it written, or this test shows nothing", content,
			getErr)
	}
	if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrUnavailable) ||
		!strings.Contains(err.Error(), "ObjectLockConfiguration") {
		t.Errorf("Put = %v; want ErrUnknown, and the gateway's words", err)
	}
}
