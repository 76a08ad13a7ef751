// Package s3fence lets a store of objects that speaks the protocol of Amazon S3 refuse a holder
// that was overtaken. Package fence says what a guard is.
//
// It works with the client of the AWS SDK for Go, version 2.
//
//	guard := s3fence.Guard{Client: s3.NewFromConfig(config), Bucket: "reports"}
//
//	err := guard.Put(ctx, "daily.json", lock.Token(), func(stamp string) ([]byte, error) {
//		return json.Marshal(report{Fence: stamp, Total: 80}) // the stamp is part of it
//	})
//	if errors.Is(err, fence.ErrStale) { // a later holder has written: stop
//	}
//
// # Check and write in one step
//
// Put asks the store for the token of the object and its ETag, and has it write only if the object
// still has that ETag (If-Match), or only if there is none (If-None-Match: *). If another write
// came in between, the store refuses, and Put looks again.
//
// # The stamp
//
// An ETag tells contents apart, not writes: mostly it is the MD5 of the content. So If-Match alone
// is not enough:
//
//	A (token 33) looks: token 32, ETag x. A is paused.
//	B (token 34) writes the same content as is there: token 34, ETag x.
//	A goes on and writes if the ETag is x. It is.
//
// B's write is lost, and its token too: now token 33 is the newest. Metadata do not help, because
// the ETag does not depend on them. So each write has a stamp that was never there before, made of
// the token and a random number, and the content must contain the stamp. Then no ETag comes twice.
// You choose where the stamp stands, so readers need nothing of this package: a member of a JSON
// object, a comment, a line, the Comment of a gzip.Writer. Put fails with [fence.ErrInvalid] if the
// content does not contain the stamp as it is.
//
// Write a content that has no room for a stamp, or that is too large for memory and one request, to
// an object with a new name, without the guard. Then Put that name into a small object, where
// readers look first.
//
// The stamp is also in the object's metadata, as [MetadataKey]. There Put finds the token. Some
// stores put an answer to HEAD together from two versions of an object, with the token of one and
// the ETag of the next. So Put writes only after two answers with the same ETag. No ETag comes
// twice, so the second answer has the token of that version or of a later one, and if it is of a
// later one, the condition does not hold.
//
// # Which stores
//
// The store must decide on the condition and write in one step, and have different ETags for
// different contents, as Amazon S3 does. A store that does not know conditions may ignore them and
// guard nothing; [Guard.Check] sees that. No check can show that it is one step: look into the
// store's manual. Versity's gateway for files does it in one step from version 1.8 on. Replication
// between buckets is not part of the step, so write to one bucket.
//
// A gateway to files may have one object for two keys, such as a/b and a//b, and the tokens of two
// locks cannot be compared. So use no key there that has an empty part, . or .. between slashes.
//
// A writer may also need the right to list the bucket: without it, Amazon S3 answers 403 rather
// than 404 for an object that is not there. Objects that are encrypted with a key that each request
// has to bring (SSE-C) cannot be guarded, because Put cannot look at them.
//
// Google's store has a number for each write (x-goog-if-generation-match). A guard by that number
// would need no stamp. Its manual has no If-Match for writes; use Check before you trust it with
// this package.
//
// # What forgets a token
//
// The object has the token. If somebody deletes the object, or a rule of the bucket lets it expire,
// the token is gone, and an older one is accepted. Instead of deleting, write a content that says
// that the object is gone. A Guard itself deletes nothing. Versions of a bucket change nothing:
// conditions and tokens are those of the current version. But Versity's gateway takes the mark of a
// deleted object for an object, so Put fails there with [fence.ErrUnavailable].
//
// Nobody refuses a write past the guard, or a copy of an object or of an earlier version to the
// key. It leaves the token that comes with it, or none.
package s3fence
