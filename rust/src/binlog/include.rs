//! Which tables are wanted, and which of their columns: patterns `schema.table` with `*` and `?`.

/// The names of tables like `schema.table`.
struct Pattern {
    schema: String,
    table: String,
}

impl Pattern {
    /// The pattern comes back as the error when it has no dot.
    fn new(pattern: &str) -> Result<Self, String> {
        let (schema, table) = pattern.split_once('.').ok_or_else(|| pattern.to_owned())?;
        Ok(Self { schema: schema.to_owned(), table: table.to_owned() })
    }

    fn fits(&self, schema: &[u8], table: &[u8]) -> bool {
        matches(self.schema.as_bytes(), schema) && matches(self.table.as_bytes(), table)
    }
}

pub struct Include {
    tables: Vec<Pattern>,
    columns: Vec<(Pattern, Vec<String>)>,
}

impl Include {
    /// All columns of tables like `tables`; of those that are also like a pattern of `columns`, only the columns named there.
    /// The pattern that has no dot comes back as the error.
    pub fn new(tables: &[String], columns: &[(String, Vec<String>)]) -> Result<Self, String> {
        let named = |(pattern, names): &(String, Vec<String>)| Ok((Pattern::new(pattern)?, names.clone()));
        Ok(Self {
            tables: tables.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?,
            columns: columns.iter().map(named).collect::<Result<_, String>>()?,
        })
    }

    pub fn wants(&self, schema: &[u8], table: &[u8]) -> bool {
        self.tables.iter().any(|pattern| pattern.fits(schema, table))
    }

    /// The columns that are wanted of a table; None: all.
    pub fn columns(&self, schema: &[u8], table: &[u8]) -> Option<Vec<&str>> {
        let fitting: Vec<_> = self.columns.iter().filter(|(pattern, _)| pattern.fits(schema, table)).collect();
        let names = fitting.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
        (!fitting.is_empty()).then(|| names.collect())
    }
}

/// Wildcards without recursion: a star remembers where to go on when the rest does not fit.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&letter) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == letter => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star_p, star_n)) = star else { return false };
                star = Some((star_p, star_n + 1));
                p = star_p + 1;
                n = star_n + 1;
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let include = Include::new(&["shop.*".into(), "a?.t*x".into()], &[]).ok();
        let wants = |schema: &str, table: &str| {
            include.as_ref().is_some_and(|include| include.wants(schema.as_bytes(), table.as_bytes()))
        };
        assert!(wants("shop", "orders"));
        assert!(!wants("shop2", "orders"));
        assert!(wants("ab", "tx") && wants("ab", "t1x2x"));
        assert!(!wants("a", "tx") && !wants("ab", "t1x2"));
        assert!(Include::new(&["shop".into()], &[]).is_err());
    }
    #[test]
    fn columns_of_all_patterns_that_fit() {
        let columns = [("shop.*".to_owned(), vec!["id".to_owned()]), ("*.orders".to_owned(), vec!["total".to_owned()])];
        let include = Include::new(&["*.*".into()], &columns).ok();
        let names = |table: &str| include.as_ref().and_then(|include| include.columns(b"shop", table.as_bytes()));
        assert_eq!(names("orders"), Some(vec!["id", "total"]));
        assert_eq!(names("customers"), Some(vec!["id"]));
        assert_eq!(include.as_ref().and_then(|include| include.columns(b"other", b"t")), None);
    }
}
