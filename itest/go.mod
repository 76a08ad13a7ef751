module github.com/holdfast-go/holdfast/itest

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/caddyserver/certmagic v0.25.2
	github.com/gofiber/fiber/v3 v3.1.0
	github.com/golang-migrate/migrate/v4 v4.19.1
	github.com/hibiken/asynq v0.26.0
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/goredishold v0.0.0
	github.com/holdfast-go/holdfast/redishold v0.0.0
	github.com/redis/go-redis/v9 v9.19.0
	modernc.org/sqlite v1.50.0
)

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/andybalholm/brotli v1.2.0 // indirect
	github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream v1.7.26 // indirect
	github.com/aws/aws-sdk-go-v2/internal/configsources v1.5.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 v2.8.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/v4a v1.5.10 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/accept-encoding v1.13.24 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/checksum v1.11.11 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/presigned-url v1.14.10 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/s3shared v1.20.10 // indirect
	github.com/aws/smithy-go v1.28.8 // indirect
	github.com/caddyserver/zerossl v0.1.5 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/coreos/go-systemd/v22 v22.5.0 // indirect
	github.com/go-co-op/gocron/v2 v2.21.2 // indirect
	github.com/gofiber/schema v1.7.0 // indirect
	github.com/gofiber/utils/v2 v2.0.2 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.26.3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/klauspost/compress v1.18.4 // indirect
	github.com/klauspost/cpuid/v2 v2.3.0 // indirect
	github.com/libdns/libdns v1.1.1 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mholt/acmez/v3 v3.1.6 // indirect
	github.com/miekg/dns v1.1.72 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/pressly/goose/v3 v3.26.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/sethvargo/go-retry v0.3.0 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	github.com/tinylib/msgp v1.6.3 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.69.0 // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
	go.etcd.io/etcd/api/v3 v3.6.10 // indirect
	go.etcd.io/etcd/client/pkg/v3 v3.6.10 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap/exp v0.3.0 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/mod v0.38.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	golang.org/x/tools v0.48.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20251202230838-ff82c1b0f217 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217 // indirect
	google.golang.org/grpc v1.79.3 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)

require (
	github.com/aws/aws-sdk-go-v2 v1.47.7
	github.com/aws/aws-sdk-go-v2/service/s3 v1.114.8
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/go-sql-driver/mysql v1.9.3
	github.com/go-zookeeper/zk v1.0.4
	github.com/google/uuid v1.6.0 // indirect
	github.com/holdfast-go/holdfast/etcdhold v0.0.0
	github.com/holdfast-go/holdfast/fence/etcdfence v0.0.0
	github.com/holdfast-go/holdfast/fence/pgxfence v0.0.0
	github.com/holdfast-go/holdfast/fence/s3fence v0.0.0
	github.com/holdfast-go/holdfast/pghold v0.0.0
	github.com/holdfast-go/holdfast/with/asynq v0.0.0
	github.com/holdfast-go/holdfast/with/certmagic v0.0.0
	github.com/holdfast-go/holdfast/with/cron v0.0.0
	github.com/holdfast-go/holdfast/with/fiber v0.0.0
	github.com/holdfast-go/holdfast/with/gocron v0.0.0
	github.com/holdfast-go/holdfast/with/goose v0.0.0
	github.com/holdfast-go/holdfast/with/migrate v0.0.0
	github.com/holdfast-go/holdfast/with/redislock v0.0.0
	github.com/holdfast-go/holdfast/with/redisson v0.0.0
	github.com/holdfast-go/holdfast/with/redsync v0.0.0
	github.com/holdfast-go/holdfast/zkhold v0.0.0
	github.com/jackc/pgx/v5 v5.7.6
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	go.etcd.io/etcd/client/v3 v3.6.10
	go.uber.org/zap v1.27.1
	golang.org/x/sys v0.47.0
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)

replace github.com/holdfast-go/holdfast => ../

replace github.com/holdfast-go/holdfast/goredishold => ../goredishold

replace github.com/holdfast-go/holdfast/redishold => ../redishold

replace github.com/holdfast-go/holdfast/fence/etcdfence => ../fence/etcdfence

replace github.com/holdfast-go/holdfast/fence/s3fence => ../fence/s3fence

replace github.com/holdfast-go/holdfast/fence/pgxfence => ../fence/pgxfence

replace github.com/holdfast-go/holdfast/etcdhold => ../etcdhold

replace github.com/holdfast-go/holdfast/pghold => ../pghold

replace github.com/holdfast-go/holdfast/zkhold => ../zkhold

replace github.com/holdfast-go/holdfast/with/asynq => ../with/asynq

replace github.com/holdfast-go/holdfast/with/certmagic => ../with/certmagic

replace github.com/holdfast-go/holdfast/with/cron => ../with/cron

replace github.com/holdfast-go/holdfast/with/fiber => ../with/fiber

replace github.com/holdfast-go/holdfast/with/gocron => ../with/gocron

replace github.com/holdfast-go/holdfast/with/goose => ../with/goose

replace github.com/holdfast-go/holdfast/with/migrate => ../with/migrate

replace github.com/holdfast-go/holdfast/with/redislock => ../with/redislock

replace github.com/holdfast-go/holdfast/with/redisson => ../with/redisson

replace github.com/holdfast-go/holdfast/with/redsync => ../with/redsync
