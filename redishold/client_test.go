package redishold_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// reached reports what a client made by ClientOption stores and reads back.
func reached(t *testing.T, url string) {
	t.Helper()
	option, err := redishold.ClientOption(url)
	if err != nil {
		t.Fatal(err)
	}
	if !option.DisableRetry || !option.DisableCache {
		t.Errorf("%s: repeats %v, caches %v", url, !option.DisableRetry, !option.DisableCache)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	defer client.Close()
	for _, key := range []string{"a", "b", "c"} { // of several servers, if it is a cluster
		set := client.B().Set().Key(key).Value("1").Build()
		if err := client.Do(t.Context(), set).Error(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestClientOption: a client reaches what Open reaches by the same URL, of every form.
func TestClientOption(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		reached(t, redistest.Start(t, redistest.WithPassword("sesame")).URL())
	})
	t.Run("TLS", func(t *testing.T) {
		c := redistest.NewCertificates(t)
		reached(t, redistest.Start(t, redistest.WithTLS(c)).URL()+"?tls-ca="+c.CA+"&tls-cert="+
			c.ClientCert+"&tls-key="+c.ClientKey)
	})
	t.Run("socket", func(t *testing.T) {
		reached(t, redistest.Start(t, redistest.WithSocket()).URL())
	})
	t.Run("cluster", func(t *testing.T) { reached(t, redistest.StartCluster(t, 2, 0).URL()) })
	t.Run("Sentinels", func(t *testing.T) { reached(t, redistest.StartSentinels(t).URL()) })
}

// TestClientOptionBadInput: errors have the words of Open's, without the password.
func TestClientOptionBadInput(t *testing.T) {
	_, err := redishold.ClientOption("redis://:hidden@a,b")
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "2 hosts") ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}
