//! Decoding as capture does it, and what must hold whatever the bytes are.

use _native::fuzzing::{Before, Boundary, Decoder, Fault, Include, Item, Stop, definition};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};

/// What the first byte of an input chooses.
#[derive(Clone, Copy)]
pub struct Options(pub u8);

impl Options {
    fn before_images(self) -> bool {
        self.0 & 1 != 0
    }

    fn at_ddl(self) -> bool {
        self.0 & 2 != 0
    }

    fn names_required(self) -> bool {
        self.0 & 4 != 0
    }

    pub fn checksums(self) -> bool {
        self.0 & 8 != 0
    }
}

/// What is to be decoded: a file or packets, and the definitions that are known.
pub struct Log<'d> {
    pub bytes: &'d [u8],
    pub network: bool,
    pub definitions: &'d [(String, String, String)],
    pub options: Options,
}

/// What came out between two takes.
pub struct Step {
    items: Vec<Decoded>,
    boundary: Option<Boundary>,
}

#[derive(Debug)]
pub enum Decoded {
    Rows { id: i64, table: String, batch: RecordBatch },
    Ddl { id: i64, sql: String },
}

const FILE: &str = "binlog.000001";
/// No more is kept for comparing than this; memory that the decoder takes is to show.
const COMPARED_BYTES: usize = 4 << 20;
const COMPARED_BOUNDARIES: usize = 8;

impl Log<'_> {
    fn decoder(&self) -> Decoder {
        let include = Include::new(&["*.*".to_owned()], &[]).expect("a pattern with a dot");
        let (before_images, names_required) = (self.options.before_images(), self.options.names_required());
        let mut decoder = Decoder::new(include, before_images, self.network, names_required);
        for (schema, table, columns) in self.definitions {
            decoder.define(schema.clone(), table.clone(), Some(definition(columns)));
        }
        decoder
    }

    /// All that comes out, taken at the end of each transaction, and the fault that ended it. None: too much to keep.
    pub fn decode(&self) -> Option<(Vec<Step>, Option<Fault>)> {
        let offset = if self.network { 4 } else { 0 };
        let mut decoder = self.decoder();
        decoder.start(FILE, offset, &nothing_before()).expect("the file's name has a number");
        self.run(decoder, self.bytes)
    }

    /// From each of the first boundaries on comes what came when everything was decoded; less when a row event there goes by a
    /// table map before the boundary, which no server writes.
    pub fn check_restarts(&self) {
        let Some((steps, fault)) = self.decode() else { return };
        let boundaries = steps.iter().enumerate().filter_map(|(index, step)| Some((index, step.boundary.as_ref()?)));
        for (index, boundary) in boundaries.take(COMPARED_BOUNDARIES) {
            let before = Before {
                expanded: boundary.expanded,
                gtids: &boundary.gtids,
                commit_ts_us: boundary.commit_ts_us,
                ..nothing_before()
            };
            let mut decoder = self.decoder();
            match decoder.start(&boundary.file, boundary.offset, &before) {
                Err(fault) if fault.message().contains("mixes") => return,
                started => started.expect("a boundary is a place to start"),
            }
            let rest = usize::try_from(boundary.offset).ok().and_then(|offset| self.bytes.get(offset..));
            let rest = rest.expect("a boundary is within its file");
            // It reads on to the event behind the formats, which can be the broken one.
            if boundary.offset > 0 && decoder.prime(self.bytes).is_err() {
                assert!(fault.is_some(), "a file with a boundary has a format");
                return;
            }
            if let Some((again, again_fault)) = self.run(decoder, rest) {
                assert!(fault.is_none() || again_fault.is_some(), "a restart steps over {:?}", fault);
                // A statement within a transaction can be taken together with the boundary before it.
                let expected = items(&steps[index..]).filter(|item| item.id() >= boundary.id);
                assert_begins(items(&again), expected, again_fault.is_none());
            }
        }
    }

    fn run(&self, mut decoder: Decoder, bytes: &[u8]) -> Option<(Vec<Step>, Option<Fault>)> {
        let stop = Stop { rows: 1, bytes: 1, at_ddl: self.options.at_ddl() };
        let (mut steps, mut used, mut kept_bytes, mut newest_id) = (Vec::new(), 0, Some(0), i64::MIN);
        loop {
            let fed = decoder.feed(&bytes[used..], stop);
            let (items, boundary) = match decoder.take() {
                Ok(taken) => taken,
                Err(fault) => return kept_bytes.map(|_: usize| (steps, Some(fault))),
            };
            let items: Vec<_> = items.into_iter().map(|item| checked(item, &decoder)).collect();
            if let Some(boundary) = &boundary {
                assert!(boundary.id >= newest_id, "a boundary goes back");
                newest_id = boundary.id;
            }
            let bytes: usize = items.iter().map(Decoded::bytes).sum();
            kept_bytes = kept_bytes.map(|kept| kept + bytes).filter(|&kept| kept <= COMPARED_BYTES);
            if kept_bytes.is_some() {
                steps.push(Step { items, boundary });
            } else {
                steps.clear();
            }
            match fed {
                Ok(0) if !decoder.in_payload() => break,
                Ok(more) => used += more,
                Err(fault) => return kept_bytes.map(|_| (steps, Some(fault))),
            }
        }
        let _ = decoder.finish();
        kept_bytes.map(|_| (steps, None))
    }
}

fn nothing_before() -> Before<'static> {
    Before { expanded: 0, gtids: "", renumbered: 0, commit_ts_us: i64::MIN, skip_until_us: i64::MIN }
}

/// Rows must be what readers of Arrow trust: the decoder builds texts without checking them again.
fn checked(item: Item, decoder: &Decoder) -> Decoded {
    match item {
        Item::Rows { table, batch, .. } => {
            for column in batch.columns() {
                column.to_data().validate_full().expect("an array that is whole");
            }
            let table = decoder.table(table).expect("a table that rows belong to");
            let id = batch.column(0).as_primitive::<Int64Type>().value(0);
            Decoded::Rows { id, table: table.to_json(), batch }
        }
        Item::Ddl(ddl) => Decoded::Ddl { id: ddl.id, sql: ddl.sql },
    }
}

impl Decoded {
    /// Of the first row.
    fn id(&self) -> i64 {
        let (Self::Rows { id, .. } | Self::Ddl { id, .. }) = self;
        *id
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Rows { batch, .. } => batch.get_array_memory_size(),
            Self::Ddl { sql, .. } => sql.len(),
        }
    }

    /// True when the other begins with what is here.
    fn begins(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows { table, batch, .. }, Self::Rows { table: other_table, batch: other, .. }) => {
                let rows = batch.num_rows();
                table == other_table && rows <= other.num_rows() && *batch == other.slice(0, rows)
            }
            (Self::Ddl { id, sql }, Self::Ddl { id: other_id, sql: other }) => id == other_id && sql == other,
            _ => false,
        }
    }
}

pub fn items(steps: &[Step]) -> impl Iterator<Item = &Decoded> {
    steps.iter().flat_map(|step| &step.items)
}

/// Some items begin the others, or are the same.
pub fn assert_begins<'d>(
    some: impl Iterator<Item = &'d Decoded>,
    mut others: impl Iterator<Item = &'d Decoded>,
    same: bool,
) {
    for item in some {
        let other = others.next().expect("no more than there was");
        assert!(item.begins(other), "{item:?} where there was {other:?}");
    }
    assert!(!same || others.next().is_none(), "fewer than there were");
}
