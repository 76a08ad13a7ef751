package backendurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// redisPrefix is put before names on Redis, where other things are kept as well.
const redisPrefix = "lock:"

// redisParams are the parameters that make sense for a scheme.
func redisParams(name string) map[string]string {
	params := map[string]string{
		"prefix":       prefixHelp + "; " + redisPrefix + " unless set",
		"wait":         "how many replicas have to confirm; 0 unless set",
		"wait-timeout": "how long that may take; 100ms unless set",
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

// addCertificates adds the parameters of TLS.
func addCertificates(params map[string]string) {
	params["tls-ca"] = "file with the certificates of the authorities to trust, in PEM form"
	params["tls-cert"] = "file with the certificate of the client, in PEM form"
	params["tls-key"] = "file with its key, in PEM form"
}

// redisScheme is a form of address that package redishold reads by itself.
func redisScheme(name, rest string) scheme {
	return readScheme(name, rest, redisParams(name), func(address string) error {
		// Nothing is connected yet: this only reads the address.
		b, err := redishold.Open(context.Background(), address, redishold.WithoutConnecting())
		if err != nil {
			return err
		}
		return b.Close()
	}, func(ctx context.Context, address string) (driver.Backend, error) {
		b, err := redishold.Open(ctx, address)
		if err != nil {
			return nil, err // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	})
}

// redlockScheme is a form of address that package redlock reads by itself.
func redlockScheme(name, rest string) scheme {
	params := map[string]string{
		"prefix":        prefixHelp + "; " + redisPrefix + " unless set",
		"restart-guard": "a server that restarted takes no part for so long, and no --ttl is longer; 1m unless set, 0s: none",
		"node-timeout":  "how long each call to a server may take; the smaller of 50ms and --ttl/10 unless set",
		"db":            "number of the database; 0 unless set",
	}
	if name == "redlocks" {
		addCertificates(params)
	}
	return readScheme(name, rest, params, redlock.Validate, func(ctx context.Context, address string) (driver.Backend, error) {
		b, err := redlock.Open(ctx, address)
		if err != nil {
			return nil, err // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	})
}

// readScheme is a form of address that is passed on as it is, but for the parameter prefix. validate checks one without
// connecting, and open opens it.
func readScheme(name, rest string, params map[string]string, validate func(address string) error,
	open func(ctx context.Context, address string) (driver.Backend, error)) scheme {
	return scheme{
		form:   name + "://" + rest,
		params: params,
		prefix: redisPrefix,
		parse: func(p parts) (string, func(context.Context) (driver.Backend, error), error) {
			if !p.slashes {
				return "", nil, errors.New("write " + name + "://" + rest)
			}
			shown := name + "://" + p.hosts + p.path
			address := shown
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
				address += "?" + query.Encode()
			}
			if err := validate(address); err != nil {
				return "", nil, fmt.Errorf("%w; write %s://%s", err, name, rest)
			}
			return shown, func(ctx context.Context) (driver.Backend, error) { return open(ctx, address) }, nil
		},
	}
}
