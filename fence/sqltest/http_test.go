package sqltest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestServiceOnATable has a guard table behind a service: what the service writes is in the guard's
// transaction.
func TestServiceOnATable(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			guard := sqlfence.Table{Dialect: d.dialect}
			run(t, db, "DROP TABLE IF EXISTS things", "CREATE TABLE things (id "+d.text()+
				" NOT NULL PRIMARY KEY, value text)",
				"DROP TABLE IF EXISTS holdfast_fence", guard.Schema())
			handler := httpfence.Handler{
				Guard:  guard.Guard(db),
				Failed: func(_ *http.Request, err error) { t.Error(err) },
				Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := sqlfence.Tx(r.Context()).ExecContext(r.Context(),
						d.upsert("things"), r.URL.Path, r.URL.RawQuery); err != nil {
						t.Error(err)
					}
					if r.URL.RawQuery == "refused" {
						w.WriteHeader(http.StatusConflict)
					}
				}),
			}
			for _, step := range []struct {
				token, query string
				status       int
				want         string
			}{
				{"5", "a", 200, "a"},
				{"4", "b", 412, "a"},
				{"9", "refused", 409, "a"},
				{"5", "c", 200, "c"}, // 9 was rolled back with its write
			} {
				request := httptest.NewRequestWithContext(t.Context(), http.MethodPut,
					"/a?"+step.query, strings.NewReader(""))
				request.Header.Set(httpfence.Header, step.token)
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, request)
				value, err := d.value(db, "things")(t.Context(), "/a")
				if response.Code != step.status || value != step.want || err != nil {
					t.Errorf("token %s: status %d and the value %q, %v; want %d and %q", step.token,
						response.Code, value, err, step.status, step.want)
				}
			}
		})
	}
}
