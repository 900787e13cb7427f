//! What a log can hold that cannot be captured: by name, with what to change. Nothing that hides rows passes in silence.

use super::event::{Header, Query, encrypted, kind};
use super::fault::{Fault, Read};
use super::statement;

const ROW_FORMAT_FIX: &str = "set binlog_format=ROW at the source and let no session change it; \
     then let capture go on behind it (`headrace skip FLOW.yaml --to latest`) and load the tables again";
const SKIP_FIX: &str = "let capture go on behind it (`headrace skip FLOW.yaml --to latest`) and load the tables again";

/// Events that mean nothing here pass; those that hide rows do not.
pub fn check_harmless(header: &Header, on_wire: bool) -> Read<()> {
    match header.kind {
        kind::STOP
        | kind::ROTATE
        | kind::INTVAR
        | kind::RAND
        | kind::USER_VAR
        | kind::SLAVE
        | kind::HEARTBEAT
        | kind::HEARTBEAT_V2
        | kind::IGNORABLE
        | kind::ROWS_QUERY
        | kind::TRANSACTION_CONTEXT
        | kind::VIEW_CHANGE
        | kind::MARIADB_ANNOTATE..=kind::MARIADB_CHECKPOINT => Ok(()),
        kind::MARIADB_START_ENCRYPTION if on_wire => Ok(()),
        kind::MARIADB_START_ENCRYPTION => Err(encrypted()),
        kind::APPEND_BLOCK..=kind::DELETE_FILE | kind::BEGIN_LOAD_QUERY | kind::EXECUTE_LOAD_QUERY => {
            Err(Fault::refused("LOAD DATA is in the log as a statement, without its rows", ROW_FORMAT_FIX))
        }
        kind::INCIDENT => {
            Err(Fault::refused("the server reports that changes are missing in its log (an incident event)", SKIP_FIX))
        }
        _ if header.is_ignorable() => Ok(()),
        other => Err(Fault::refused(
            format!("an event of type {other}, which this version does not know"),
            "use a version of headrace that knows the server's version",
        )),
    }
}

/// Rows changed by a statement that is in the log as text. Its values stay out of the message.
pub fn statement(query: &Query) -> Fault {
    let kind = statement::kind(&query.sql);
    let within = match query.schema.as_str() {
        "" => "of a session without a schema".to_owned(),
        schema => format!("in schema '{schema}'"),
    };
    Fault::refused(format!("{kind} {within} is in the log as a statement, without its rows"), ROW_FORMAT_FIX)
}

pub fn rolled_back() -> Fault {
    Fault::refused(
        "a transaction was rolled back after its rows were written to the log, which does not say which of them stayed",
        SKIP_FIX,
    )
}
