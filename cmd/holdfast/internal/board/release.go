package board

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/free"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
)

// freeing names a lock and the acquisition that is to lose it, as the page has shown both.
type freeing struct {
	ID     string `json:"id"`     // of the key
	Holder string `json:"holder"` // of the acquisition
	Token  string `json:"token"`  // of the acquisition; empty if the backend does not keep it
}

// freed is the answer.
type freed struct {
	Text string `json:"text"` // what was done, or why nothing was
}

// release frees a lock while exactly that acquisition holds it.
func (b *Board) release(w http.ResponseWriter, r *http.Request, body freeing) {
	if !b.Release {
		refuse(w, http.StatusForbidden,
			"the board was started without --allow-release, so it frees nothing")
		return
	}
	name, ok := b.nameOf(body.ID)
	token, err := strconv.ParseUint(body.Token, 10, 64)
	badToken := body.Token != "" && (err != nil || token == 0 || token > uint64(fence.MaxToken))
	if !ok || badToken || body.Holder == "" {
		refuse(w, http.StatusBadRequest, "the request names no acquisition of a lock")
		return
	}
	leave, ok := b.frees.enter(look.NameOf(b.View.Prefix+name, b.View.Prefix).String())
	if !ok {
		refuse(w, http.StatusServiceUnavailable, "other locks are being freed; try again")
		return
	}
	defer leave()
	// A release that has begun is finished and logged, even if the page is closed or the board is
	// ended meanwhile.
	text, err := b.free(context.WithoutCancel(r.Context()), name, body.Holder,
		driver.Token(token))
	code := http.StatusOK
	if err != nil {
		code, text = statusOf(err), look.Line(b.Hide(err.Error()))
	}
	b.Log("%s; asked for by the board from %s", text, r.RemoteAddr)
	b.details.forgetAll(body.ID)
	b.lookSoon()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(look.JSONLine(freed{text}))
	_ = http.NewResponseController(w).Flush() // before the board ends
}

// errToken says that a request has left out the token, which the backend keeps.
var errToken = errors.New("it is not freed without the number of its token; nothing was freed")

// free frees a lock as holdfast release does. It finds the owner value behind the ID, and frees by
// the token if the backend keeps it.
func (b *Board) free(ctx context.Context, name, holderID string,
	token driver.Token) (string, error) {
	k, err := b.View.Inspect(ctx, name)
	if err != nil {
		return "", fmt.Errorf("nothing was freed: %w", err)
	}
	lock := free.Lock{View: b.View, Backend: b.Backend, Name: name,
		Which: look.Acquisition{Token: token}}
	i := slices.IndexFunc(k.Holders, func(p look.Party) bool {
		return ownerID(p.Value) == holderID
	})
	switch {
	case i < 0:
		return "", fmt.Errorf("%v is not held by that acquisition any more: %s; nothing was freed",
			k.Name, k.Held())
	case k.Holders[i].Token != 0 && token == 0:
		return "", fmt.Errorf("%v: %w", k.Name, errToken)
	case k.Holders[i].Token != token:
		return "", &free.NotHeldError{Key: k, Which: lock.Which}
	case token == 0 || k.Shared: // several who share it may have one token
		lock.Which = look.Acquisition{Owner: k.Holders[i].Value}
	}
	k, holder, err := lock.Holder(ctx)
	if err != nil {
		return "", err
	}
	now, unseen, err := lock.Free(ctx, k, holder)
	switch {
	case err != nil:
		return "", err
	case unseen != nil:
		return fmt.Sprintf("freed %v, which %v held; who holds it now is not known: %s", k.Name,
			holder, look.Line(b.Hide(unseen.Error()))), nil
	}
	return fmt.Sprintf("freed %v, which %v held; now %s", k.Name, holder, now.Held()), nil
}

// statusOf says whether the backend has failed, or the lock is not held so.
func statusOf(err error) int {
	var (
		maybe *free.MaybeError
		of    *driver.Error
		quiet *look.SilentError
	)
	if errors.As(err, &maybe) || errors.As(err, &of) || errors.As(err, &quiet) {
		return http.StatusBadGateway
	}
	return http.StatusConflict
}
