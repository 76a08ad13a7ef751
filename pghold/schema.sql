-- What package pghold keeps in PostgreSQL, version 4. To run it again changes nothing.
--
-- All time is clock_timestamp() of the server, read when the row of the key is locked. Every
-- function locks the row of its key first, and then looks at the other tables: under READ COMMITTED
-- each statement of a VOLATILE function has a snapshot of its own, so it sees what was committed
-- before that lock was granted.
--
-- The functions use PostgreSQL's own operators and functions, whatever the user's search_path names:
-- another operator in it would change what a lease is.
--
-- A user of the locks needs
--
--     GRANT USAGE ON SCHEMA holdfast TO locks;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO locks;
--
-- and a user who only looks at them needs the same with only SELECT.

SELECT pg_advisory_xact_lock(7236837711923604595); -- one migration at a time

CREATE SCHEMA IF NOT EXISTS holdfast;

-- A row for each key that was held lately. It stays for ten minutes after the key became free.
CREATE TABLE IF NOT EXISTS holdfast.locks (
    key     bytea PRIMARY KEY,
    owner   bytea,                -- who holds it alone; NULL if nobody does
    expires timestamptz NOT NULL, -- end of the lease, or of the longest that share; else since when
    token   bigint NOT NULL,      -- the first token of the holder's last block
    fence   bigint NOT NULL,      -- the last token that was granted; it only rises
    crowded boolean NOT NULL      -- the other tables may have rows of the key
) WITH (fillfactor = 50);         -- room for updates in place

-- Who shares a key.
CREATE TABLE IF NOT EXISTS holdfast.sharers (
    key     bytea,
    owner   bytea,
    expires timestamptz NOT NULL,
    token   bigint NOT NULL,
    PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

-- Who waits for a key, served by ticket and then by owner.
CREATE TABLE IF NOT EXISTS holdfast.waiters (
    key       bytea,
    owner     bytea,
    ticket    bigint NOT NULL,
    until     timestamptz NOT NULL, -- end of the presence
    token     bigint NOT NULL,      -- the smallest one that is wanted
    block     bigint NOT NULL,      -- how many tokens
    shared    boolean NOT NULL,
    client    text NOT NULL,        -- who is told of the grant
    listening boolean NOT NULL,     -- whether it hears a NOTIFY
    PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

-- Claims of which requests were overtaken by a later one. If these still arrive, they are ignored.
CREATE TABLE IF NOT EXISTS holdfast.ended (
    key    bytea,
    owner  bytea,                     -- of the claim, behind whose requests these are: see sender
    until  timestamptz NOT NULL,
    number bigint NOT NULL DEFAULT 0, -- of the last request that is ignored
    PRIMARY KEY (key, owner)
);
-- Since version 4. Functions of version 3, which its clients still call, fill in only the others,
-- and need this primary key. So it has no further column.
ALTER TABLE holdfast.ended ADD COLUMN IF NOT EXISTS number bigint NOT NULL DEFAULT 0;

-- One row.
CREATE TABLE IF NOT EXISTS holdfast.server (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    floor  bigint NOT NULL DEFAULT 0, -- at least the fence of each key whose row is gone
    member text NOT NULL DEFAULT ''   -- the set of nodes that it belongs to, as a node of a quorum
);
INSERT INTO holdfast.server DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Since when the server surely forgets nothing. PostgreSQL empties an unlogged table in every
-- crash, and on a standby that takes over it is empty: in both cases the last commits may be lost.
CREATE UNLOGGED TABLE IF NOT EXISTS holdfast.run (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    start timestamptz NOT NULL, -- of the server
    since timestamptz NOT NULL
);

-- microseconds between two times, or since 1970.
CREATE OR REPLACE FUNCTION holdfast.microseconds(p_span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_span) * 1000000)::bigint
$$;

-- admit says whether the server takes part. state is '' if so, 'quarantine' with what remains of
-- the guard, or 'set' with the set that the server belongs to. It takes on the first set.
CREATE OR REPLACE FUNCTION holdfast.admit(p_guard bigint, p_member text,
    OUT state text, OUT remaining bigint, OUT belongs text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_start CONSTANT timestamptz := pg_postmaster_start_time();
    v_now CONSTANT timestamptz := clock_timestamp();
    v_run holdfast.run;
BEGIN
    state := '';
    remaining := 0;
    belongs := '';
    IF p_guard > 0 THEN
        SELECT * INTO v_run FROM holdfast.run;
        IF NOT FOUND THEN -- it is new, has crashed, or was a standby
            INSERT INTO holdfast.run VALUES (true, v_start, v_now) ON CONFLICT DO NOTHING;
        ELSIF v_run.start <> v_start OR v_run.since > v_now THEN -- a restart, or the clock set back
            UPDATE holdfast.run SET start = v_start, since = CASE
                WHEN v_run.start <> v_start AND v_start < v_now THEN v_start ELSE v_now END;
        END IF;
        SELECT p_guard - holdfast.microseconds(v_now - r.since) INTO remaining
            FROM holdfast.run AS r;
        remaining := coalesce(remaining, p_guard); -- somebody has just removed the row
        IF remaining > 0 THEN
            state := 'quarantine';
            RETURN;
        END IF;
    END IF;
    IF p_member <> '' THEN
        SELECT s.member INTO belongs FROM holdfast.server AS s;
        IF NOT FOUND THEN -- a copy of the schema without what is in it
            INSERT INTO holdfast.server DEFAULT VALUES ON CONFLICT DO NOTHING;
            belongs := '';
        END IF;
        IF belongs = '' THEN
            UPDATE holdfast.server SET member = p_member WHERE member = '';
            SELECT s.member INTO belongs FROM holdfast.server AS s;
        END IF;
        IF split_part(belongs, '/from/', 1) <> p_member THEN
            state := 'set';
        END IF;
    END IF;
END
$$;

-- durable has the transaction that calls it be on the disk before it is answered, even if
-- synchronous_commit is off for the user, the database or the server: a crash must not forget a
-- lease or a token that somebody was told of. A SET clause of a function would be undone when the
-- function returns, which is before the commit.
CREATE OR REPLACE FUNCTION holdfast.durable() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- enter locks the row of a key, and makes it first if there is none.
CREATE OR REPLACE FUNCTION holdfast.enter(p_key bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs the isolation level read committed, not %',
            current_setting('transaction_isolation') USING ERRCODE = 'invalid_transaction_state';
    END IF;
    LOOP
        PERFORM 1 FROM holdfast.locks AS l WHERE l.key = p_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO holdfast.locks VALUES (p_key, NULL, clock_timestamp(), 0, 0, false)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- Now, and not in the same statement: the row may have been removed while that waited.
            UPDATE holdfast.locks AS l SET fence = s.floor FROM holdfast.server AS s
                WHERE l.key = p_key AND s.floor > 0;
            EXIT;
        END IF;
    END LOOP;
END
$$;

-- settle ends what is over, and hands a free key to those whose turn it is: the first live waiter
-- or, if that one shares, all that share up to the first that does not. If the key is shared
-- already, it lets in only waiters that share. They get what remains of their presence and a
-- notice; the asker gets no notice. The caller has the row of the key locked.
CREATE OR REPLACE FUNCTION holdfast.settle(p_key bytea, p_now timestamptz, p_asker bytea,
    p_client text,
    OUT holder bytea, OUT ends timestamptz, OUT sharing boolean, OUT changed boolean,
    OUT notices text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_lock holdfast.locks;
    v_was holdfast.locks;
    v_next holdfast.waiters;
    v_notice text;
BEGIN
    notices := '';
    sharing := false;
    SELECT * INTO v_lock FROM holdfast.locks AS l WHERE l.key = p_key;
    v_was := v_lock;
    IF v_lock.owner IS NOT NULL AND v_lock.expires <= p_now THEN
        v_lock.owner := NULL;
    END IF;
    IF v_lock.crowded THEN
        DELETE FROM holdfast.sharers AS s WHERE s.key = p_key AND s.expires <= p_now;
        DELETE FROM holdfast.waiters AS w WHERE w.key = p_key AND w.until <= p_now;
        DELETE FROM holdfast.ended AS e WHERE e.key = p_key AND e.until <= p_now;
        sharing := v_lock.owner IS NULL
            AND EXISTS (SELECT FROM holdfast.sharers AS s WHERE s.key = p_key);
        WHILE v_lock.owner IS NULL LOOP
            SELECT * INTO v_next FROM holdfast.waiters AS w WHERE w.key = p_key
                ORDER BY w.ticket, w.owner LIMIT 1;
            EXIT WHEN NOT FOUND OR sharing AND NOT v_next.shared;
            DELETE FROM holdfast.waiters AS w WHERE w.key = p_key AND w.owner = v_next.owner;
            v_lock.token := greatest(v_lock.fence + 1, v_next.token);
            v_lock.fence := v_lock.token + v_next.block - 1;
            IF v_next.shared THEN
                sharing := true;
                INSERT INTO holdfast.sharers AS s
                    VALUES (p_key, v_next.owner, v_next.until, v_lock.token)
                    ON CONFLICT (key, owner) DO UPDATE
                    SET expires = excluded.expires, token = excluded.token;
            ELSE
                v_lock.owner := v_next.owner;
                v_lock.expires := v_next.until;
            END IF;
            IF v_next.owner IS DISTINCT FROM p_asker THEN
                v_notice := v_lock.token || ' ' || v_next.block || ' '
                    || encode(v_next.owner, 'hex') || ' ' || encode(p_key, 'hex');
                IF v_next.client = p_client THEN -- told with the answer
                    notices := notices || v_notice || E'\n';
                ELSIF v_next.listening THEN -- only then, as it takes a lock of the whole server
                    -- A commit that waits for a standby is shown when the wait is cancelled, too. So
                    -- the waiter has to ask, which waits for a standby that has all of it.
                    PERFORM pg_notify('holdfast_' || v_next.client, v_notice
                        || CASE current_setting('synchronous_standby_names')
                            WHEN '' THEN '' ELSE ' ask' END);
                END IF;
            END IF;
        END LOOP;
        IF sharing THEN
            SELECT s.owner, s.expires INTO holder, v_lock.expires FROM holdfast.sharers AS s
                WHERE s.key = p_key ORDER BY s.expires DESC, s.owner DESC LIMIT 1;
        END IF;
        v_lock.crowded := sharing
            OR EXISTS (SELECT FROM holdfast.waiters AS w WHERE w.key = p_key)
            OR EXISTS (SELECT FROM holdfast.ended AS e WHERE e.key = p_key);
    END IF;
    changed := v_lock IS DISTINCT FROM v_was;
    IF changed THEN
        UPDATE holdfast.locks AS l SET owner = v_lock.owner, expires = v_lock.expires,
            token = v_lock.token, fence = v_lock.fence, crowded = v_lock.crowded
            WHERE l.key = p_key;
    END IF;
    holder := coalesce(v_lock.owner, holder);
    ends := v_lock.expires;
END
$$;

-- sender says whose requests about a claim are meant: a command may free a key by its owner value.
-- The name of a client has no space.
CREATE OR REPLACE FUNCTION holdfast.sender(p_client text, p_owner bytea) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(p_client || ' ', 'UTF8') || p_owner
$$;

-- ignore has a client's requests of a claim up to a number be ignored, if they arrive within a
-- minute. The caller has the row of the key locked, and settles the key afterwards.
CREATE OR REPLACE FUNCTION holdfast.ignore(p_key bytea, p_owner bytea, p_client text,
    p_late bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO holdfast.ended AS e (key, owner, until, number)
        VALUES (p_key, holdfast.sender(p_client, p_owner), p_now + interval '1 minute', p_late)
        ON CONFLICT (key, owner) DO UPDATE SET until = excluded.until, number = excluded.number;
    UPDATE holdfast.locks AS l SET crowded = true WHERE l.key = p_key;
END
$$;

-- acquire grants a key that is free, that the owner has already, or that is shared and asked for as
-- shared. Otherwise it tells who holds it and queues the owner, unless p_ticket is NULL; 0 is the
-- order of arrival. The client's requests have numbers, which rise: this one has p_number, and those
-- of the claim up to p_late are ignored from now on; 0 if none of them may arrive.
-- Spans are in microseconds. state is held, busy, or what admit says.
CREATE OR REPLACE FUNCTION holdfast.acquire(p_key bytea, p_owner bytea, p_ttl bigint,
    p_presence bigint, p_token bigint, p_block bigint, p_ticket bigint, p_shared boolean,
    p_client text, p_listening boolean, p_guard bigint, p_member text,
    p_number bigint, p_late bigint,
    OUT state text, OUT granted bigint, OUT holder bytea, OUT remaining bigint, OUT place bigint,
    OUT clock bigint, OUT notices text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz;
    v_ends timestamptz;
    v_sharing boolean;
    v_changed boolean;
    v_mine boolean;
    v_grant boolean;
    v_ticket bigint;
    v_lock holdfast.locks;
BEGIN
    granted := 0;
    holder := '';
    remaining := 0;
    place := 0;
    clock := 0;
    notices := '';
    PERFORM holdfast.durable();
    IF p_guard > 0 OR p_member <> '' THEN
        SELECT a.state, a.remaining, a.belongs INTO state, remaining, notices
            FROM holdfast.admit(p_guard, p_member) AS a;
        IF state <> '' THEN
            RETURN;
        END IF;
        notices := '';
        remaining := 0;
    END IF;

    IF NOT p_shared AND p_late = 0
            AND current_setting('transaction_isolation') = 'read committed' THEN -- see enter
        -- All that this decides on is in the one row, which PostgreSQL looks at anew after it
        -- waited for it. The clock may be from before that wait: then the lease ends sooner.
        UPDATE holdfast.locks AS l SET owner = p_owner,
            expires = clock_timestamp() + p_ttl * interval '1 microsecond',
            token = greatest(l.fence + 1, p_token),
            fence = greatest(l.fence + 1, p_token) + p_block - 1
            WHERE l.key = p_key AND NOT l.crowded
            AND (l.owner IS NULL OR l.owner = p_owner OR l.expires <= clock_timestamp())
            RETURNING l.token INTO granted;
        IF FOUND THEN
            state := 'held';
            RETURN;
        END IF;
        granted := 0;
    END IF;

    PERFORM holdfast.enter(p_key);
    v_now := clock_timestamp();
    IF EXISTS (SELECT FROM holdfast.ended AS e
            WHERE e.key = p_key AND e.owner = holdfast.sender(p_client, p_owner)
            AND e.until > v_now AND e.number >= p_number) THEN
        state := 'busy'; -- a later request was served before: nobody waits for the answer
        RETURN;
    END IF;
    IF p_late > 0 THEN
        PERFORM holdfast.ignore(p_key, p_owner, p_client, p_late, v_now);
    END IF;
    SELECT s.holder, s.ends, s.sharing, s.changed, s.notices
        INTO holder, v_ends, v_sharing, v_changed, notices
        FROM holdfast.settle(p_key, v_now, p_owner, p_client) AS s;
    SELECT * INTO v_lock FROM holdfast.locks AS l WHERE l.key = p_key;
    v_mine := v_sharing AND EXISTS (SELECT FROM holdfast.sharers AS s
        WHERE s.key = p_key AND s.owner = p_owner);
    IF v_lock.owner IS NOT NULL THEN
        v_grant := v_lock.owner = p_owner;
    ELSIF NOT v_sharing THEN
        v_grant := true; -- nobody waits: settle would have handed it over
    ELSE
        v_grant := p_shared AND (v_mine
            OR NOT EXISTS (SELECT FROM holdfast.waiters AS w WHERE w.key = p_key)
            OR coalesce(p_ticket, 0) > 0 AND NOT EXISTS (SELECT FROM holdfast.waiters AS w
                WHERE w.key = p_key
                AND (w.owner = p_owner OR (w.ticket, w.owner) < (p_ticket, p_owner))));
    END IF;

    IF v_grant THEN
        state := 'held';
        holder := '';
        granted := greatest(v_lock.fence + 1, p_token);
        v_ends := v_now + p_ttl * interval '1 microsecond';
        IF p_shared AND v_lock.owner IS NULL THEN
            INSERT INTO holdfast.sharers AS s VALUES (p_key, p_owner, v_ends, granted)
                ON CONFLICT (key, owner) DO UPDATE
                SET expires = excluded.expires, token = excluded.token;
            UPDATE holdfast.locks AS l SET fence = granted + p_block - 1, crowded = true,
                expires = (SELECT max(s.expires) FROM holdfast.sharers AS s WHERE s.key = p_key)
                WHERE l.key = p_key;
        ELSE
            UPDATE holdfast.locks AS l SET owner = p_owner, expires = v_ends, token = granted,
                fence = granted + p_block - 1 WHERE l.key = p_key;
        END IF;
        RETURN;
    END IF;

    state := 'busy';
    remaining := holdfast.microseconds(v_ends - v_now);
    IF NOT v_changed AND p_late = 0 THEN
        -- What a crash can forget of this is a presence: it costs a place, and nobody's lease.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF v_mine OR p_ticket IS NULL AND NOT EXISTS (SELECT FROM holdfast.waiters AS w
            WHERE w.key = p_key AND w.owner = p_owner) THEN
        RETURN;
    END IF;
    clock := (extract(epoch FROM v_now) * 1000000)::bigint;
    v_ticket := p_ticket;
    IF coalesce(v_ticket, 0) = 0 THEN -- raised over the last one: the clock may be set back
        SELECT greatest(clock, max(w.ticket) + 1) INTO v_ticket FROM holdfast.waiters AS w
            WHERE w.key = p_key;
    END IF;
    INSERT INTO holdfast.waiters AS w VALUES (p_key, p_owner, v_ticket,
            v_now + p_presence * interval '1 microsecond', p_token, p_block, p_shared, p_client,
            p_listening)
        ON CONFLICT (key, owner) DO UPDATE SET until = excluded.until, token = excluded.token,
            block = excluded.block, client = excluded.client, listening = excluded.listening
        RETURNING w.ticket INTO v_ticket;
    IF NOT v_lock.crowded THEN
        UPDATE holdfast.locks AS l SET crowded = true WHERE l.key = p_key;
    END IF;
    SELECT count(*) + 1 INTO place FROM holdfast.waiters AS w
        WHERE w.key = p_key AND (w.ticket, w.owner) < (v_ticket, p_owner);
END
$$;

-- release ends a hold, or takes a waiter out of the queue, and hands the key over. For p_number and
-- p_late see acquire. state is held, busy or lost: what the claim was until now.
CREATE OR REPLACE FUNCTION holdfast.release(p_key bytea, p_owner bytea, p_number bigint,
    p_late bigint, p_client text, OUT state text, OUT notices text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz;
    v_live boolean;
    v_owner bytea;
    v_ends timestamptz;
    v_crowded boolean;
    v_late boolean;
BEGIN
    state := 'lost';
    notices := '';
    PERFORM holdfast.durable();
    IF p_late = 0 THEN
        UPDATE holdfast.locks AS l SET owner = NULL, expires = clock_timestamp()
            WHERE l.key = p_key AND l.owner = p_owner AND NOT l.crowded
            AND l.expires > clock_timestamp();
        IF FOUND THEN
            state := 'held';
            IF random() < 0.001 THEN
                PERFORM holdfast.sweep();
            END IF;
            RETURN;
        END IF;
        PERFORM 1 FROM holdfast.locks AS l WHERE l.key = p_key;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;

    PERFORM holdfast.enter(p_key);
    v_now := clock_timestamp();
    SELECT l.owner, l.expires, l.crowded, l.crowded AND EXISTS (SELECT FROM holdfast.ended AS e
            WHERE e.key = p_key AND e.owner = holdfast.sender(p_client, p_owner)
            AND e.until > v_now AND e.number >= p_number)
        INTO v_owner, v_ends, v_crowded, v_late
        FROM holdfast.locks AS l WHERE l.key = p_key;
    IF v_late THEN
        RETURN; -- the claim was asked for again before
    END IF;
    IF v_owner = p_owner THEN
        IF v_ends > v_now THEN
            state := 'held';
            UPDATE holdfast.locks AS l SET owner = NULL, expires = v_now WHERE l.key = p_key;
        END IF;
    ELSIF v_crowded THEN
        DELETE FROM holdfast.sharers AS s WHERE s.key = p_key AND s.owner = p_owner
            RETURNING s.expires > v_now INTO v_live;
        IF v_live THEN
            state := 'held';
        END IF;
        DELETE FROM holdfast.waiters AS w WHERE w.key = p_key AND w.owner = p_owner
            RETURNING w.until > v_now INTO v_live;
        IF v_live THEN
            state := 'busy';
        END IF;
    END IF;
    IF p_late > 0 THEN
        PERFORM holdfast.ignore(p_key, p_owner, p_client, p_late, v_now);
    END IF;
    SELECT s.notices INTO notices FROM holdfast.settle(p_key, v_now, NULL, p_client) AS s;
    IF random() < 0.001 THEN
        PERFORM holdfast.sweep();
    END IF;
END
$$;

-- renew extends leases that have not ended, each only if the key is still the owner's. With a block
-- it draws tokens and says whether somebody waits. With p_shared it makes a claim that holds its
-- key alone share it. It gives a row for each claim that is held, or one row with what admit says.
CREATE OR REPLACE FUNCTION holdfast.renew(p_keys bytea[], p_owners bytea[], p_ttls bigint[],
    p_tokens bigint[], p_blocks bigint[], p_shared boolean[], p_client text, p_guard bigint,
    p_member text)
RETURNS TABLE (state text, n bigint, granted bigint, waiting boolean, remaining bigint,
    notices text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz;
    v_claim record;
    v_lock holdfast.locks;
BEGIN
    PERFORM holdfast.durable();
    IF p_guard > 0 OR p_member <> '' THEN
        RETURN QUERY SELECT a.state, 0::bigint, 0::bigint, false, a.remaining, a.belongs
            FROM holdfast.admit(p_guard, p_member) AS a WHERE a.state <> '';
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    -- In one order for everybody: two who renew the same keys never wait for each other.
    PERFORM 1 FROM holdfast.locks AS l WHERE l.key = ANY (p_keys) ORDER BY l.key FOR UPDATE;
    v_now := clock_timestamp();
    RETURN QUERY
        WITH claims AS (
            SELECT * FROM unnest(p_keys, p_owners, p_ttls, p_blocks, p_shared) WITH ORDINALITY
                AS c(key, owner, ttl, block, shared, n)
        ), renewed AS (
            UPDATE holdfast.locks AS l SET expires = v_now + c.ttl * interval '1 microsecond'
                FROM claims AS c WHERE l.key = c.key AND l.owner = c.owner AND l.expires > v_now
                AND c.block = 0 AND NOT c.shared
                RETURNING l.key, l.owner
        )
        SELECT 'held'::text, c.n, 0::bigint, false, 0::bigint, ''::text
            FROM claims AS c JOIN renewed AS r ON r.key = c.key AND r.owner = c.owner
            WHERE c.block = 0 AND NOT c.shared;

    FOR v_claim IN
        SELECT c.* FROM unnest(p_keys, p_owners, p_ttls, p_tokens, p_blocks, p_shared)
            WITH ORDINALITY AS c(key, owner, ttl, token, block, shared, n)
            JOIN holdfast.locks AS l ON l.key = c.key
            WHERE l.crowded OR l.owner = c.owner AND l.expires > v_now
                AND (c.block > 0 OR c.shared)
            ORDER BY c.n
    LOOP
        SELECT * INTO v_lock FROM holdfast.locks AS l WHERE l.key = v_claim.key;
        state := 'held';
        n := v_claim.n;
        granted := 0;
        waiting := false;
        remaining := 0;
        notices := '';
        IF v_claim.block > 0 THEN
            granted := greatest(v_lock.fence + 1, v_claim.token);
            v_lock.fence := granted + v_claim.block - 1;
        END IF;
        IF v_lock.owner = v_claim.owner THEN
            CONTINUE WHEN v_lock.expires <= v_now OR v_claim.block = 0 AND NOT v_claim.shared;
            UPDATE holdfast.locks AS l
                SET expires = v_now + v_claim.ttl * interval '1 microsecond',
                    token = CASE WHEN granted > 0 THEN granted ELSE l.token END,
                    fence = v_lock.fence,
                    owner = CASE WHEN v_claim.shared THEN NULL ELSE l.owner END,
                    crowded = l.crowded OR v_claim.shared
                WHERE l.key = v_claim.key RETURNING l.* INTO v_lock;
            IF v_claim.shared THEN
                INSERT INTO holdfast.sharers AS s
                    VALUES (v_claim.key, v_claim.owner, v_lock.expires, v_lock.token)
                    ON CONFLICT (key, owner) DO UPDATE
                    SET expires = excluded.expires, token = excluded.token;
            END IF;
        ELSE
            UPDATE holdfast.sharers AS s
                SET expires = v_now + v_claim.ttl * interval '1 microsecond',
                    token = CASE WHEN granted > 0 THEN granted ELSE s.token END
                WHERE s.key = v_claim.key AND s.owner = v_claim.owner AND s.expires > v_now
                AND v_lock.owner IS NULL;
            CONTINUE WHEN NOT FOUND;
            IF v_claim.block > 0 THEN
                UPDATE holdfast.locks AS l SET fence = v_lock.fence WHERE l.key = v_claim.key;
            END IF;
        END IF;
        IF v_lock.crowded THEN
            SELECT s.notices INTO notices
                FROM holdfast.settle(v_claim.key, v_now, v_claim.owner, p_client) AS s;
            waiting := v_claim.block > 0
                AND EXISTS (SELECT FROM holdfast.waiters AS w WHERE w.key = v_claim.key);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- sweep removes rows of keys that nobody has held or waited for in ten minutes, a thousand at most,
-- and keeps the highest of their fences. It waits for nobody. One of a thousand releases calls it.
CREATE OR REPLACE FUNCTION holdfast.sweep(p_age interval DEFAULT '10 minutes') RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_old CONSTANT timestamptz := clock_timestamp() - p_age;
    v_key record;
    v_floor bigint := 0;
    v_removed bigint := 0;
BEGIN
    INSERT INTO holdfast.server DEFAULT VALUES ON CONFLICT DO NOTHING; -- as in admit
    PERFORM 1 FROM holdfast.server FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0; -- somebody else sweeps
    END IF;
    FOR v_key IN SELECT l.key, l.fence, l.crowded FROM holdfast.locks AS l WHERE l.expires < v_old
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        IF v_key.crowded THEN
            DELETE FROM holdfast.sharers AS s WHERE s.key = v_key.key AND s.expires < v_old;
            DELETE FROM holdfast.waiters AS w WHERE w.key = v_key.key AND w.until < v_old;
            DELETE FROM holdfast.ended AS e WHERE e.key = v_key.key AND e.until < v_old;
            CONTINUE WHEN EXISTS (SELECT FROM holdfast.sharers AS s WHERE s.key = v_key.key)
                OR EXISTS (SELECT FROM holdfast.waiters AS w WHERE w.key = v_key.key)
                OR EXISTS (SELECT FROM holdfast.ended AS e WHERE e.key = v_key.key);
        END IF;
        v_floor := greatest(v_floor, v_key.fence);
        v_removed := v_removed + 1;
        DELETE FROM holdfast.locks AS l WHERE l.key = v_key.key;
    END LOOP;
    UPDATE holdfast.server SET floor = v_floor WHERE floor < v_floor;
    RETURN v_removed;
END
$$;

-- move replaces the set of nodes that the server belongs to, if that is p_from, and gives what it
-- is then.
CREATE OR REPLACE FUNCTION holdfast.move(p_from text, p_to text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM holdfast.durable();
    UPDATE holdfast.server SET member = p_to WHERE member = p_from;
    RETURN (SELECT s.member FROM holdfast.server AS s);
END
$$;

-- version of this schema.
CREATE OR REPLACE FUNCTION holdfast.version() RETURNS integer
LANGUAGE sql IMMUTABLE AS 'SELECT 4';
