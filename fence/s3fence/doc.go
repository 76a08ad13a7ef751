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
// B's write is lost, and its token, too: now token 33 is the newest. Metadata do not help, as the
// ETag does not depend on them. So each write has a stamp that was never there before, of the token
// and a random number, and the content must have it in it: then no ETag comes twice. Where it
// stands is up to you, so readers need nothing of this package: a member of a JSON object, a
// comment, a line, the Comment of a gzip.Writer. Put fails with [fence.ErrInvalid] for a content
// that does not have it as it is.
//
// What has no room for it, or is too large for memory and one request, goes to an object with a new
// name, past the guard; then Put writes that name to a small object, where readers look first.
//
// The stamp is in the object's metadata as well, as [MetadataKey], where Put finds the token. Some
// stores put an answer to HEAD together from two versions of an object, with the token of one and
// the ETag of the next. So Put writes after two answers with the same ETag: as none comes twice,
// the second has the token of that version, or of a later one, and then the condition does not
// hold.
//
// # Which stores
//
// The store must decide on the condition and write in one step, and have different ETags for
// different contents, as Amazon S3 does. One that does not know conditions may ignore them and
// guard nothing, which [Guard.Check] sees. That it is one step no check can show: ask its manual.
// That of Versity's gateway for files is, from version 1.8 on. Replication between buckets is not
// part of the step: write to one.
//
// A gateway to files may have one object for two keys, such as a/b and a//b. The tokens of two
// locks cannot be compared, so let no part of a key between slashes be empty, . or .. there.
//
// Who writes may need the right to list the bucket, too: without, Amazon S3 answers 403 rather than
// 404 for an object that is not there. Objects that are encrypted with a key that each request has
// to bring (SSE-C) cannot be looked at, so they cannot be guarded.
//
// Google's store has a number of each write (x-goog-if-generation-match), which would need no
// stamp. Its manual has no If-Match for writes; use Check before you trust it with this package.
//
// # What forgets a token
//
// The object has the token, so who deletes it, or lets it expire by a rule of the bucket, deletes
// the token, and an older one is accepted then. Instead of deleting, write a content that says so,
// a tombstone; hence a Guard deletes nothing. Versions of a bucket change nothing: conditions and
// tokens are those of the current one. But Versity's gateway takes the mark of a deleted object for
// an object, so that Put fails there with [fence.ErrUnavailable].
//
// Who writes past the guard, or copies an object or an earlier version to the key, is not refused,
// and leaves the token that comes with it, or none.
package s3fence
