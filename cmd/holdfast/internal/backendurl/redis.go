package backendurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold"
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
		params["tls-ca"] = "file with the certificates of the authorities to trust, in PEM form"
		params["tls-cert"] = "file with the certificate of the client, in PEM form"
		params["tls-key"] = "file with its key, in PEM form"
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

// redisScheme is a form of address that package redishold reads by itself.
func redisScheme(name, rest string) scheme {
	return scheme{
		form:   name + "://" + rest,
		params: redisParams(name),
		prefix: redisPrefix,
		parse: func(p parts) (string, func(context.Context) (driver.Backend, error), error) {
			if !p.slashes {
				return "", nil, errors.New("write " + name + "://" + rest)
			}
			shown := name + "://" + p.hosts + p.path
			address := name + "://" + p.hosts + p.path
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
			// Nothing is connected yet: this only reads the address.
			b, err := redishold.Open(context.Background(), address, redishold.WithoutConnecting())
			if err != nil {
				return "", nil, fmt.Errorf("%w; write %s://%s", err, name, rest)
			}
			if err := b.Close(); err != nil {
				return "", nil, err
			}
			return shown, func(ctx context.Context) (driver.Backend, error) {
				b, err := redishold.Open(ctx, address)
				if err != nil {
					return nil, err // not b: a nil pointer in an interface is not nil
				}
				return b, nil
			}, nil
		},
	}
}
