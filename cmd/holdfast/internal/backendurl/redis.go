package backendurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// redisPrefix is put before names on Redis, which stores other things as well.
const redisPrefix = "lock:"

// redisParams returns the parameters that a scheme takes, and what they mean.
func redisParams(name string) map[string]string {
	params := map[string]string{
		"prefix":       prefixHelp + "; " + redisPrefix + " unless set",
		"wait":         "how many replicas have to confirm; 0 unless set",
		"wait-timeout": "how long the replicas may take; 100ms unless set",
	}
	if strings.HasPrefix(name, "rediss") {
		addCertificates(params)
	}
	if strings.HasSuffix(name, "+sentinel") {
		params["sentinel-user"] = "user name for the Sentinels"
		params["sentinel-password"] = "password for the Sentinels"
	}
	if name == "redis+unix" {
		params["db"] = "number of the database; 0 unless set"
	}
	return params
}

// addCertificates adds the parameters of TLS to params.
func addCertificates(params map[string]string) {
	params["tls-ca"] = "file with the certificates of the authorities to trust, in PEM form"
	params["tls-cert"] = "file with the certificate of the client, in PEM form"
	params["tls-key"] = "file with the key of the client, in PEM form"
}

// redisScheme returns a scheme whose addresses package redishold parses.
func redisScheme(name, rest string) scheme {
	return readScheme(name, rest, redisParams(name), func(address string) error {
		// WithoutConnecting: this only parses the address.
		b, err := redishold.Open(context.Background(), address, redishold.WithoutConnecting())
		if err != nil {
			return err
		}
		return b.Close()
	}, func(ctx context.Context, address string, h how) (driver.Backend, error) {
		b, err := redishold.Open(ctx, address, h.options()...)
		if err != nil {
			return nil, inOurWords{err} // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	})
}

// options are those of a connection to a server.
func (h how) options() []redishold.Option {
	if h.reads {
		return []redishold.Option{redishold.WithReadOnly()}
	}
	return nil
}

// redlockScheme returns a scheme whose addresses package redlock parses.
func redlockScheme(name, rest string) scheme {
	params := map[string]string{
		"prefix":        prefixHelp + "; " + redisPrefix + " unless set",
		"restart-guard": "how long a restarted server takes no part, and the longest --ttl; 1m unless set, 0s for neither",
		"durable":       "always if no server loses data in a restart; a restarted server then takes part at once",
		"node-timeout":  "how long each call to a server may take; the smaller of 50ms and --ttl/10 unless set",
		"set":           "name of the set, for clients that use different addresses; the addresses unless set",
		"db":            "number of the database; 0 unless set",
	}
	if name == "redlocks" {
		addCertificates(params)
	}
	s := readScheme(name, rest, params, redlock.Validate, func(ctx context.Context, address string,
		h how) (driver.Backend, error) {
		b, err := redlock.Open(ctx, address, redlock.WithQuorum(quorum.WithObserver(h.watch)),
			redlock.WithNodes(h.options()...))
		if err != nil {
			return nil, inOurWords{err} // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	})
	s.limits = func(params map[string]string) limits {
		l := limits{longest: quorum.DefaultGuard, why: "restart-guard, which is"}
		if guard, err := time.ParseDuration(params["restart-guard"]); err == nil {
			l.longest = guard
		}
		// 0 if not given: then it depends on the TTL.
		l.timeout, _ = time.ParseDuration(params["node-timeout"])
		return l
	}
	return s
}

// readScheme returns a scheme whose addresses are passed on unchanged, but without the parameter
// prefix. validate checks an address without connecting, and open opens it.
func readScheme(name, rest string, params map[string]string, validate func(address string) error,
	open func(ctx context.Context, address string, h how) (driver.Backend, error)) scheme {
	return scheme{
		form:   name + "://" + rest,
		params: params,
		prefix: redisPrefix,
		parse: func(p parts) (string, opener, error) {
			if !p.slashes {
				return "", nil, errors.New("write " + name + "://" + rest)
			}
			shown, address := passOn(name, p)
			if err := validate(address); err != nil {
				return "", nil, fmt.Errorf("%w; write %s://%s", inOurWords{err}, name, rest)
			}
			return shown, func(ctx context.Context, h how) (driver.Backend, error) {
				return open(ctx, address, h)
			}, nil
		},
	}
}

// passOn joins the parts of an address again: shown has no secrets, address has everything but the
// parameter prefix.
func passOn(name string, p parts) (shown, address string) {
	shown = name + "://" + p.hosts + p.path
	address = shown
	if p.hasUser {
		address = name + "://" + p.userinfo + "@" + p.hosts + p.path
	}
	query := url.Values{}
	for param, value := range p.params {
		if param != "prefix" {
			query.Set(param, value)
		}
	}
	if len(query) > 0 {
		// Encode writes a space as a '+', which PostgreSQL's clients take for itself.
		address += "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
	}
	return shown, address
}
