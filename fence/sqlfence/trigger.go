package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// Trigger guards each row of a table by a column of the row, as [Column] does, and the database
// enforces it. Every writer of the table needs a token, in the transaction (PostgreSQL: the setting
// holdfast.token; SQLite: the row of the table holdfast_token) or in the session (MySQL: the
// variable @holdfast_token). The trigger refuses a write without a token, and one whose token is
// smaller than that of the row. It sets the column, so no statement has to name it.
//
// [Dialect.Do] sets the token. A program in another language sets it in its transaction:
//
//	SELECT set_config('holdfast.token', '42', true)  -- PostgreSQL: until the transaction ends
//	SET @holdfast_token = 42                         -- MySQL: to be set to NULL before the connection goes back to its pool
//	INSERT INTO holdfast_token VALUES (42)           -- SQLite: to be deleted before the transaction is committed
//
// Some statements do not ask triggers: on MySQL foreign keys that cascade, and TRUNCATE; on
// PostgreSQL TRUNCATE of a partition by its own name; on SQLite REPLACE if another unique column
// than Key collides. Give the right to do these only to those who need it. On SQLite a row whose
// Key is NULL is refused.
type Trigger struct {
	_ struct{} // keyed literals only: fields will be added

	// Dialect is the database's. Required.
	Dialect Dialect

	// Table is the table. Required.
	Table string

	// Key is the column that identifies a row, its primary key. Default "id". Only SQLite needs it.
	Key string

	// Fence is the column with the token, a 64-bit integer. Default "fence".
	Fence string
}

// Statements returns the statements that create the triggers, each to be executed by itself. Read
// them, and run them with the other migrations. They replace triggers that are there. In between,
// the table is without some of its triggers, and a write without a token would get through. So run
// them in one transaction on PostgreSQL and SQLite, and while nobody writes on MySQL.
//
// The triggers have the name of the table in their names. If the table's name has a schema, more
// than 38 bytes, or characters other than small letters, digits and _, they have its beginning and
// a checksum instead. Statements fails with [fence.ErrInvalid] if the name of the table or a column
// is no identifier.
func (t Trigger) Statements() ([]string, error) {
	t.Key, t.Fence = orDefault(t.Key, "id"), orDefault(t.Fence, "fence")
	if err := errors.Join(t.Dialect.validate(),
		validateNames(t.Table, t.Key, t.Fence)); err != nil {
		return nil, err
	}
	text := map[Dialect]string{Postgres: postgresTrigger, MySQL: mysqlTrigger,
		SQLite: sqliteTrigger}[t.Dialect]
	text = strings.NewReplacer("TABLE_NAME", t.Dialect.word(t.Table), "TABLE_HERE", t.Table,
		"KEY_HERE", t.Key, "FENCE_HERE", t.Fence).Replace(text)
	statements := strings.Split(strings.TrimSpace(text), "\n\n")
	return statements, nil
}

const postgresTrigger = `
CREATE OR REPLACE FUNCTION holdfast_fence_TABLE_NAME() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	token bigint := nullif(current_setting('holdfast.token', true), '');
BEGIN
	IF token IS NULL OR token NOT BETWEEN 1 AND 9007199254740992 THEN
		RAISE EXCEPTION 'holdfast: no token for TABLE_NAME' USING ERRCODE = 'HF002',
			HINT = 'Call set_config(''holdfast.token'', the token of your lock, true) in the transaction.';
	END IF;
	IF TG_OP = 'TRUNCATE' THEN
		RAISE EXCEPTION 'holdfast: TRUNCATE of TABLE_NAME cannot be guarded' USING ERRCODE = 'HF002';
	END IF;
	IF TG_OP <> 'INSERT' AND OLD.FENCE_HERE > token THEN
		RAISE EXCEPTION 'holdfast: stale token % for TABLE_NAME, the newest is %', token, OLD.FENCE_HERE USING ERRCODE = 'HF001';
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	NEW.FENCE_HERE := token;
	RETURN NEW;
END $$

DROP TRIGGER IF EXISTS holdfast_fence ON TABLE_HERE

CREATE TRIGGER holdfast_fence BEFORE INSERT OR UPDATE OR DELETE ON TABLE_HERE
	FOR EACH ROW EXECUTE FUNCTION holdfast_fence_TABLE_NAME()

DROP TRIGGER IF EXISTS holdfast_fence_truncate ON TABLE_HERE

CREATE TRIGGER holdfast_fence_truncate BEFORE TRUNCATE ON TABLE_HERE
	FOR EACH STATEMENT EXECUTE FUNCTION holdfast_fence_TABLE_NAME()
`

const mysqlTrigger = `
DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_insert

CREATE TRIGGER holdfast_fence_TABLE_NAME_insert BEFORE INSERT ON TABLE_HERE FOR EACH ROW
BEGIN
	IF coalesce(@holdfast_token, 0) NOT BETWEEN 1 AND 9007199254740992 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: no token for TABLE_NAME';
	END IF;
	SET NEW.FENCE_HERE = @holdfast_token;
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_update

CREATE TRIGGER holdfast_fence_TABLE_NAME_update BEFORE UPDATE ON TABLE_HERE FOR EACH ROW
BEGIN
	DECLARE message varchar(128);
	IF coalesce(@holdfast_token, 0) NOT BETWEEN 1 AND 9007199254740992 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: no token for TABLE_NAME';
	END IF;
	IF OLD.FENCE_HERE > CAST(@holdfast_token AS SIGNED) THEN
		SET message = concat('holdfast: stale token ', @holdfast_token, ' for TABLE_NAME, the newest is ', OLD.FENCE_HERE);
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message;
	END IF;
	SET NEW.FENCE_HERE = @holdfast_token;
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_delete

CREATE TRIGGER holdfast_fence_TABLE_NAME_delete BEFORE DELETE ON TABLE_HERE FOR EACH ROW
BEGIN
	DECLARE message varchar(128);
	IF coalesce(@holdfast_token, 0) NOT BETWEEN 1 AND 9007199254740992 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: no token for TABLE_NAME';
	END IF;
	IF OLD.FENCE_HERE > CAST(@holdfast_token AS SIGNED) THEN
		SET message = concat('holdfast: stale token ', @holdfast_token, ' for TABLE_NAME, the newest is ', OLD.FENCE_HERE);
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message;
	END IF;
END
`

// SQLite has no variables, and a trigger there cannot change the row that is written. One
// connection writes at a time, so nobody else sees a row that is deleted before the transaction is
// committed.
const sqliteTrigger = `
CREATE TABLE IF NOT EXISTS holdfast_token (token integer NOT NULL)

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_insert

CREATE TRIGGER holdfast_fence_TABLE_NAME_insert BEFORE INSERT ON TABLE_HERE
BEGIN
	SELECT RAISE(ABORT, 'holdfast: no token for TABLE_NAME')
		WHERE NOT EXISTS (SELECT 1 FROM holdfast_token WHERE token BETWEEN 1 AND 9007199254740992);
	SELECT RAISE(ABORT, 'holdfast: stale token for TABLE_NAME') -- INSERT OR REPLACE asks no trigger for DELETE
		WHERE EXISTS (SELECT 1 FROM TABLE_HERE WHERE KEY_HERE = NEW.KEY_HERE AND FENCE_HERE > (SELECT max(token) FROM holdfast_token));
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_inserted

CREATE TRIGGER holdfast_fence_TABLE_NAME_inserted AFTER INSERT ON TABLE_HERE
BEGIN
	SELECT RAISE(ABORT, 'holdfast: no key in a row for TABLE_NAME') WHERE NEW.KEY_HERE IS NULL;
	UPDATE TABLE_HERE SET FENCE_HERE = (SELECT max(token) FROM holdfast_token)
		WHERE KEY_HERE = NEW.KEY_HERE AND FENCE_HERE IS NOT (SELECT max(token) FROM holdfast_token);
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_update

CREATE TRIGGER holdfast_fence_TABLE_NAME_update BEFORE UPDATE ON TABLE_HERE
BEGIN
	SELECT RAISE(ABORT, 'holdfast: no key in a row for TABLE_NAME') WHERE OLD.KEY_HERE IS NULL OR NEW.KEY_HERE IS NULL;
	SELECT RAISE(ABORT, 'holdfast: no token for TABLE_NAME')
		WHERE NOT EXISTS (SELECT 1 FROM holdfast_token WHERE token BETWEEN 1 AND 9007199254740992);
	SELECT RAISE(ABORT, 'holdfast: stale token for TABLE_NAME')
		WHERE EXISTS (SELECT 1 FROM TABLE_HERE WHERE KEY_HERE IN (OLD.KEY_HERE, NEW.KEY_HERE) AND FENCE_HERE > (SELECT max(token) FROM holdfast_token));
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_updated

CREATE TRIGGER holdfast_fence_TABLE_NAME_updated AFTER UPDATE ON TABLE_HERE
BEGIN
	UPDATE TABLE_HERE SET FENCE_HERE = (SELECT max(token) FROM holdfast_token)
		WHERE KEY_HERE = NEW.KEY_HERE AND FENCE_HERE IS NOT (SELECT max(token) FROM holdfast_token);
END

DROP TRIGGER IF EXISTS holdfast_fence_TABLE_NAME_delete

CREATE TRIGGER holdfast_fence_TABLE_NAME_delete BEFORE DELETE ON TABLE_HERE
BEGIN
	SELECT RAISE(ABORT, 'holdfast: no token for TABLE_NAME')
		WHERE NOT EXISTS (SELECT 1 FROM holdfast_token WHERE token BETWEEN 1 AND 9007199254740992);
	SELECT RAISE(ABORT, 'holdfast: stale token for TABLE_NAME')
		WHERE OLD.FENCE_HERE > (SELECT max(token) FROM holdfast_token);
END
`

// Do runs write in a transaction that has the token, and commits it. The token is for the triggers
// of the tables that write changes. If write fails or the context ends, Do rolls back. The token
// ends with the transaction, so the next user of the connection does not have it.
//
// write has to return the error of a statement that fails, as in [Table.Do].
//
// Do fails with [*fence.StaleError], which names the table as its triggers do, if write returns the
// error of a statement that a [Trigger] has refused. It fails with [fence.ErrInvalid], with
// [fence.ErrUnavailable] and with the error of write. It fails with [fence.ErrUnknown] if the
// database did not tell whether it has committed, and if write has ended the transaction itself. A
// refused statement has written nothing. The context bounds the transaction.
func (d Dialect) Do(ctx context.Context, db *sql.DB, token fence.Token,
	write func(*sql.Tx) error) error {
	const resource = "transaction"
	if err := errors.Join(d.validate(), fence.ValidateToken(resource, token)); err != nil {
		return err
	}
	return transact(ctx, d, db, resource, func(tx *sql.Tx) error {
		if err := d.enter(ctx, tx, token); err != nil {
			return outcome(ctx, resource, false, err)
		}
		if err := write(tx); err != nil {
			return d.refusal(err, token)
		}
		if err := d.leave(ctx, tx); err != nil {
			return outcome(ctx, resource, endedByWrite(ctx, err), err)
		}
		return nil
	})
}

func (d Dialect) enter(ctx context.Context, tx *sql.Tx, token fence.Token) error {
	var err error
	switch d {
	case Postgres:
		_, err = tx.ExecContext(ctx, "SELECT set_config('holdfast.token', $1, true)",
			token.String())
	case MySQL:
		_, err = tx.ExecContext(ctx, "SET @holdfast_token = "+token.String())
	case SQLite:
		if err = d.leave(ctx, tx); err == nil { // a token that somebody has forgotten
			_, err = tx.ExecContext(ctx, "INSERT INTO holdfast_token VALUES (?)", int64(token))
		}
	}
	return err
}

// leave takes back a token that would outlive the transaction in the database.
func (d Dialect) leave(ctx context.Context, tx *sql.Tx) error {
	if d != SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, "DELETE FROM holdfast_token")
	return err
}
