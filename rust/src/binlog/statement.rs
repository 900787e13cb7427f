//! Statements in the log: which are harmless, which change tables, and which change rows (a log in row format has none of those).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    Begin,
    Commit,
    Rollback,
    /// Undoes part of a transaction.
    RollbackTo,
    /// XA START: begins a transaction that XA PREPARE ends.
    XaStart,
    XaRollback,
    /// SAVEPOINT, XA END and the like: inside a transaction, without effect on rows.
    Inside,
    /// Changes what tables are.
    Ddl,
    /// GRANT, FLUSH, ANALYZE and the like: stands alone, changes no table.
    Alone,
    /// Changes rows, written as text.
    Dml,
}

const DDL: [&str; 5] = ["CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"];
const ALONE: [&str; 19] = [
    "GRANT",
    "REVOKE",
    "FLUSH",
    "OPTIMIZE",
    "REPAIR",
    "CHECK",
    "CHECKSUM",
    "SET",
    "INSTALL",
    "UNINSTALL",
    "CHANGE",
    "RESET",
    "PURGE",
    "CACHE",
    "KILL",
    "SHUTDOWN",
    "USE",
    "LOCK",
    "UNLOCK",
];

const ANALYZED: [&str; 4] = ["TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"];

/// What a statement does; `None` for text without a word (a comment).
pub fn classify(sql: &str) -> Option<Statement> {
    let mut words = Words::new(sql);
    let mut first = words.next()?.to_ascii_uppercase();
    // MariaDB: SET STATEMENT variable = value FOR another statement.
    while first == "SET" && words.peek().is_some_and(|word| word.eq_ignore_ascii_case("STATEMENT")) {
        words.find(|word| word.eq_ignore_ascii_case("FOR"))?;
        first = words.next()?.to_ascii_uppercase();
    }
    Some(match first.as_str() {
        "BEGIN" | "START" => Statement::Begin,
        "COMMIT" => Statement::Commit,
        "ROLLBACK" if words.any(|word| word.eq_ignore_ascii_case("TO")) => Statement::RollbackTo,
        "ROLLBACK" => Statement::Rollback,
        "SAVEPOINT" | "RELEASE" => Statement::Inside,
        "XA" => match words.next().unwrap_or_default().to_ascii_uppercase().as_str() {
            "START" | "BEGIN" => Statement::XaStart,
            "COMMIT" => Statement::Commit,
            "ROLLBACK" => Statement::XaRollback,
            _ => Statement::Inside,
        },
        "CREATE" if creates_from_select(words.clone()) => Statement::Dml,
        // MariaDB: ANALYZE UPDATE … runs the update.
        "ANALYZE" if words.peek().is_some_and(|word| ANALYZED.contains(&word.to_ascii_uppercase().as_str())) => {
            Statement::Alone
        }
        word if DDL.contains(&word) => Statement::Ddl,
        word if ALONE.contains(&word) => Statement::Alone,
        _ => Statement::Dml,
    })
}

/// CREATE TABLE … SELECT as text: the rows it made are not in the log. (In row format the server writes it without SELECT.)
fn creates_from_select(words: Words<'_>) -> bool {
    let mut words = words
        .skip_while(|word| ["OR", "REPLACE", "TEMPORARY"].iter().any(|skipped| word.eq_ignore_ascii_case(skipped)));
    words.next().is_some_and(|word| word.eq_ignore_ascii_case("TABLE"))
        && words.any(|word| word.eq_ignore_ascii_case("SELECT"))
}

/// The kind of a statement and the beginning of its text, for messages; never the values in it.
pub fn kind(sql: &str) -> String {
    let words: Vec<&str> = Words::new(sql).take(2).collect();
    words.join(" ").to_ascii_uppercase()
}

/// True for `INSERT INTO mysql.…`, `REPLACE INTO mysql.…` and `DELETE FROM mysql.…`: hosted servers keep books there, in statement
/// format whatever the settings are.
pub fn writes_only_system_tables(sql: &str) -> bool {
    let mut words = Words::new(sql).filter(|word| {
        !["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM"]
            .iter()
            .any(|skipped| word.eq_ignore_ascii_case(skipped))
    });
    let verb = words.next().unwrap_or_default().to_ascii_uppercase();
    matches!(verb.as_str(), "INSERT" | "REPLACE" | "DELETE")
        && words.next().is_some_and(|word| word.trim_start_matches('`') == "mysql")
        && words.next() == Some(".")
}

/// Words of a statement outside strings and comments (the inside of `/*! … */` counts), quoted names with
/// their first backquote (so that they are no keywords), and dots.
#[derive(Clone)]
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn new(sql: &'a str) -> Self {
        Self { rest: sql }
    }

    fn peek(&self) -> Option<&'a str> {
        Self { rest: self.rest }.next()
    }

    /// Cuts the rest behind the next `end`, or to nothing.
    fn behind(&mut self, from: usize, end: &str) -> &'a str {
        let text = self.rest.get(from..).unwrap_or_default();
        let (inside, rest) = text.split_once(end).unwrap_or((text, ""));
        self.rest = rest;
        inside
    }

    fn skip_string(&mut self, quote: char) {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|&(_, letter)| {
            let ends = letter == quote && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        self.rest = end.and_then(|(at, _)| self.rest.get(at + 1..)).unwrap_or_default();
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start();
            let first = self.rest.chars().next()?;
            if let Some(inside) = self.rest.strip_prefix("/*!").or_else(|| self.rest.strip_prefix("/*M!")) {
                self.rest = inside.trim_start_matches(|letter: char| letter.is_ascii_digit());
            } else if self.rest.starts_with("/*") {
                self.behind(2, "*/");
            } else if self.rest.starts_with("-- ") || first == '#' {
                self.behind(1, "\n");
            } else if first == '`' {
                let name = self.rest;
                let inside = self.behind(1, "`").len();
                return name.get(..=inside);
            } else if first == '\'' || first == '"' {
                self.skip_string(first);
            } else if first.is_alphanumeric() || first == '_' {
                let end = self.rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '$');
                let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                return Some(word);
            } else {
                let (letter, rest) = self.rest.split_at(first.len_utf8());
                self.rest = rest;
                if letter == "." {
                    return Some(letter);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_statements() {
        for (sql, wanted) in [
            ("BEGIN", Statement::Begin),
            ("commit", Statement::Commit),
            ("ROLLBACK TO `a`", Statement::RollbackTo),
            ("ROLLBACK /* to */", Statement::Rollback),
            ("XA START X'31',X'',1", Statement::XaStart),
            ("XA END X'31',X'',1", Statement::Inside),
            ("XA COMMIT X'31',X'',1", Statement::Commit),
            ("/* a */ create table t(a int)", Statement::Ddl),
            ("CREATE TABLE `select` (a int comment 'select it') START TRANSACTION", Statement::Ddl),
            ("create view v as select 1", Statement::Ddl),
            ("create table t as select 1", Statement::Dml),
            ("DROP TABLE /*!40005 IF EXISTS */ t", Statement::Ddl),
            ("GRANT ALL ON *.* TO a", Statement::Alone),
            ("/*!50003 insert */ into t values (1)", Statement::Dml),
            ("(select 1)", Statement::Dml),
            ("ANALYZE TABLE t", Statement::Alone),
            ("ANALYZE FORMAT=JSON UPDATE t SET a=1", Statement::Dml),
            ("SET PASSWORD = 'x'", Statement::Alone),
            ("SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)", Statement::Dml),
            ("SET STATEMENT max_statement_time=1 FOR ALTER TABLE t ADD a INT", Statement::Ddl),
            ("WITH a AS (SELECT 1) DELETE FROM t", Statement::Dml),
        ] {
            assert_eq!(classify(sql), Some(wanted), "{sql}");
        }
        assert_eq!(classify("# Dummy event"), None);
        assert_eq!(kind("insert into t values ('secret')"), "INSERT INTO");
    }

    #[test]
    fn bookkeeping_of_hosted_servers() {
        assert!(writes_only_system_tables("INSERT INTO mysql.rds_heartbeat2(id) values (1)"));
        assert!(writes_only_system_tables("delete from `mysql`.`x`"));
        assert!(!writes_only_system_tables("insert into mysqlx.t values (1)"));
        assert!(!writes_only_system_tables("update mysql.t set a=1"));
    }
}
