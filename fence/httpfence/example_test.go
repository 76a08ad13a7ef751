package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// A service refuses the caller that was overtaken.
func Example() {
	// The service:
	var guard fence.Register // or that of its database
	accounts := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	service := httptest.NewServer(httpfence.Handler{Guard: &guard, Next: accounts})
	defer service.Close()

	// The caller:
	client := &http.Client{Transport: httpfence.Transport{}}
	put := func(token fence.Token) error { // lock.Token()
		ctx := httpfence.WithToken(context.Background(), token)
		request, err := http.NewRequestWithContext(ctx, "PUT", service.URL+"/accounts/7",
			strings.NewReader("90"))
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return httpfence.Check(response)
	}
	if err := put(8); err != nil {
		log.Fatal(err)
	}
	fmt.Println("an older token is refused:", errors.Is(put(7), fence.ErrStale))
	// Output: an older token is refused: true
}
