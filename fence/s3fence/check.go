package s3fence

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
)

// Check tries whether the store does what a guard rests on: it refuses writes whose condition does
// not hold, it keeps metadata, and it has different ETags for different contents. Call Check when a
// service starts, unless you know that the store does this. Check does not see whether the store
// decides and writes in one step when there are two writers at once.
//
// It writes an object of that key, which nobody may use for anything else, and leaves it there.
// Many may check at once.
//
// Check fails with [fence.ErrInvalid] if the store does not do all that, or if the key or a setting
// is not allowed. It fails with [fence.ErrUnavailable] if the store does not answer or gives a
// wrong answer, and with [fence.ErrUnknown] if the request may still have had an effect. It fails
// with the context's error if the context ends.
func (g Guard) Check(ctx context.Context, key string) error {
	const token = 1 // of everybody who checks
	content := func(stamp string) ([]byte, error) { return []byte(stamp), nil }
	var etags [2]string
	for i := range etags {
		if err := g.Put(ctx, key, token, content); err != nil {
			return err
		}
		w := g.newWrite(key, token, content, nil)
		v, err := w.look(ctx)
		if err != nil {
			return w.failed(ctx, fence.ErrUnavailable, "look at the object", err)
		}
		if v.token != token {
			return invalid(key, "the store does not keep the metadata "+MetadataKey)
		}
		etags[i] = v.etag
	}
	if etags[0] == etags[1] {
		return invalid(key, "the store has the ETag "+etags[0]+" for two contents")
	}
	// The first is that of the content before.
	for header, condition := range map[string]func(*s3.PutObjectInput){
		"If-Match":      func(in *s3.PutObjectInput) { in.IfMatch = &etags[0] },
		"If-None-Match": func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") },
	} {
		w := g.newWrite(key, token, content, nil)
		in, err := w.request("")
		if err != nil {
			return err
		}
		in.IfMatch, in.IfNoneMatch = nil, nil
		condition(in)
		switch err := w.send(ctx, in); outcomeOf(err) {
		case overtaken:
		case written:
			return invalid(key, "the store writes against the condition "+header)
		case unknown:
			return w.failed(ctx, fence.ErrUnknown, "write against "+header, err)
		default:
			return w.failed(ctx, fence.ErrUnavailable, "write against "+header, err)
		}
	}
	return nil
}
