//! Which tables are wanted: patterns `schema.table` with `*` and `?`.

pub struct Include {
    patterns: Vec<(String, String)>,
}

impl Include {
    /// The pattern that has no dot comes back as the error.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let split = |pattern: &String| -> Result<_, String> {
            let (schema, table) = pattern.split_once('.').ok_or_else(|| pattern.clone())?;
            Ok((schema.to_owned(), table.to_owned()))
        };
        Ok(Self { patterns: patterns.iter().map(split).collect::<Result<_, _>>()? })
    }

    pub fn wants(&self, schema: &[u8], table: &[u8]) -> bool {
        self.patterns
            .iter()
            .any(|(schemas, tables)| matches(schemas.as_bytes(), schema) && matches(tables.as_bytes(), table))
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
        let include = Include::new(&["shop.*".into(), "a?.t*x".into()]).ok();
        let wants = |schema: &str, table: &str| {
            include.as_ref().is_some_and(|include| include.wants(schema.as_bytes(), table.as_bytes()))
        };
        assert!(wants("shop", "orders"));
        assert!(!wants("shop2", "orders"));
        assert!(wants("ab", "tx") && wants("ab", "t1x2x"));
        assert!(!wants("a", "tx") && !wants("ab", "t1x2"));
        assert!(Include::new(&["shop".into()]).is_err());
    }
}
