//! Sets of transactions out of texts and out of both wire forms: what is read is written so that it reads back the same.
#![no_main]

use _native::fuzzing::{Cursor, GtidSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&form, data)) = data.split_first() else { return };
    match form % 3 {
        0 => {
            let text = String::from_utf8_lossy(data);
            // Two texts, for the algebra.
            let (left, right) = text.split_once('|').unwrap_or((&text, ""));
            if let (Ok(left), Ok(right)) = (GtidSet::parse(left), GtidSet::parse(right)) {
                read_back(&left);
                algebra(&left, &right);
            }
        }
        1 => GtidSet::read_mysql(Cursor::new(data)).iter().for_each(read_back),
        _ => GtidSet::read_mariadb(Cursor::new(data)).iter().for_each(read_back),
    }
});

fn read_back(set: &GtidSet) {
    assert_eq!(GtidSet::parse(&set.to_string()).as_ref().ok(), Some(set));
    let wire = GtidSet::read_mysql(Cursor::new(&set.to_wire()));
    // MariaDB's family has no such form: the count is 0.
    assert!(wire.is_ok_and(|wire| wire == *set || wire == GtidSet::default()));
}

fn algebra(left: &GtidSet, right: &GtidSet) {
    let (all, rest) = (left.union(right), left.difference(right));
    assert!(left.is_subset(&all) && right.is_subset(&all) && rest.is_subset(left));
    // Of two servers with the same sequence in a MariaDB domain either can stand for it.
    for same in [rest.union(right), right.union(left)] {
        assert!(same.is_subset(&all) && all.is_subset(&same));
    }
    assert_eq!(left.is_subset(right), rest == GtidSet::default());
}
