//! Answers to a SELECT out of parts that can be damaged without their frame, and how they are read.
//!
//! ```text
//! input = columns u8 | kind u8, kind u8, … | row, row, …          a kind stands for one of `KINDS`
//! row   = bytes u16 | payload, as it stands in a packet           a length beyond the end means: to the end
//! ```

use std::sync::Arc;

use _native::fuzzing::{Cursor, Fault};
use _native::rows_fuzzing::{Reader, Stop};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

const MAX_COLUMNS: usize = 40;
const END: [u8; 5] = [0xfe, 0, 0, 2, 0];
const UNSIGNED: u16 = 0x20;

/// Type code, flags, collation and decimals of a column, and what it becomes.
type Kind = (u8, u16, u16, u8, DataType);

fn kinds() -> Vec<Kind> {
    use DataType::{
        Binary, Date32, Decimal128, Decimal256, Duration, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp,
        UInt8, UInt16, UInt32, UInt64, Utf8,
    };
    let micros = TimeUnit::Microsecond;
    vec![
        (1, 0, 63, 0, Int8),
        (1, UNSIGNED, 63, 0, UInt8),
        (2, 0, 63, 0, Int16),
        (2, UNSIGNED, 63, 0, UInt16),
        (13, UNSIGNED, 63, 0, UInt16),
        (9, 0, 63, 0, Int32),
        (3, UNSIGNED, 63, 0, UInt32),
        (8, 0, 63, 0, Int64),
        (8, UNSIGNED, 63, 0, UInt64),
        (4, 0, 63, 31, Float32),
        (5, 0, 63, 31, Float64),
        (246, 0, 63, 2, Decimal128(12, 2)),
        (246, 0, 63, 0, Decimal128(38, 0)),
        (246, 0, 63, 30, Decimal256(65, 30)),
        (16, UNSIGNED, 63, 0, UInt64),
        (10, 0, 63, 0, Date32),
        (12, 0, 63, 3, Timestamp(micros, None)),
        (7, 0, 63, 6, Timestamp(micros, Some("UTC".into()))),
        (11, 0, 63, 6, Duration(micros)),
        (252, 0, 63, 0, Binary),
        (255, 0, 63, 0, Binary),
        (253, 0, 45, 0, Utf8),
        (254, 0, 8, 0, Utf8),
        (252, 0, 28, 0, Utf8),
        (252, 0, 54, 0, Utf8),
        (245, 0, 63, 0, Utf8),
        (3, 0, 63, 0, Utf8),
    ]
}

pub struct Answer {
    pub schema: SchemaRef,
    pub bytes: Vec<u8>,
}

impl Answer {
    /// None when the input has no columns.
    pub fn of(data: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(data);
        let count = usize::from(cursor.u8().ok()?).min(MAX_COLUMNS);
        let kinds = kinds();
        let columns: Vec<&Kind> =
            cursor.bytes(count).ok()?.iter().filter_map(|&kind| kinds.get(usize::from(kind) % kinds.len())).collect();
        let mut payloads = vec![vec![u8::try_from(columns.len()).ok().filter(|&count| count > 0)?]];
        payloads.extend(columns.iter().map(|column| definition(column)));
        payloads.push(END.to_vec());
        while let Ok(bytes) = cursor.u16() {
            let bytes = usize::from(bytes).min(cursor.left());
            payloads.push(cursor.bytes(bytes).ok()?.to_vec());
        }
        payloads.push(END.to_vec());
        let bytes = payloads.iter().zip(1_usize..).flat_map(|(payload, number)| packet(payload, number)).collect();
        let names = columns.iter().enumerate();
        let fields = names.map(|(index, column)| Field::new(format!("c{index}"), column.4.clone(), true));
        Some(Self { schema: schema(fields.collect()), bytes })
    }
}

/// A schema for bytes that nothing was made of.
pub fn any_schema() -> SchemaRef {
    schema(vec![Field::new("id", DataType::Int32, true), Field::new("text", DataType::Utf8, true)])
}

fn schema(mut fields: Vec<Field>) -> SchemaRef {
    fields.push(Field::new("raw", DataType::Utf8, true));
    Arc::new(Schema::new(fields))
}

fn packet(payload: &[u8], number: usize) -> Vec<u8> {
    let [a, b, c, ..] = payload.len().to_le_bytes();
    [&[a, b, c, number.to_le_bytes()[0]], payload].concat()
}

fn definition((code, flags, collation, decimals, _): &Kind) -> Vec<u8> {
    let mut payload = vec![3, b'd', b'e', b'f', 1, b's', 1, b't', 1, b't', 1, b'c', 1, b'c', 12];
    payload.extend(collation.to_le_bytes());
    payload.extend([0; 4]);
    payload.push(*code);
    payload.extend(flags.to_le_bytes());
    payload.extend([*decimals, 0, 0]);
    payload
}

/// All batches that came before the end or a fault, of bytes that come in pieces.
pub fn read(schema: &SchemaRef, bytes: &[u8], piece: usize, stop: Stop) -> (Vec<RecordBatch>, Option<Fault>) {
    let mut reader = Reader::new(schema.clone());
    let (mut batches, mut used, mut there) = (Vec::new(), 0, 0);
    while there < bytes.len() && !reader.at_end() {
        there = bytes.len().min(there + piece);
        loop {
            match reader.feed(&bytes[used..there], stop) {
                Ok(more) => used += more,
                Err(fault) => return (batches, Some(fault)),
            }
            if !reader.is_full(stop) {
                break;
            }
            batches.push(whole(&mut reader));
        }
    }
    if reader.rows() > 0 {
        batches.push(whole(&mut reader));
    }
    (batches, None)
}

/// Rows must be what readers of Arrow trust: texts are built without checking them again.
fn whole(reader: &mut Reader) -> RecordBatch {
    let batch = reader.finish().expect("columns that fit");
    for column in batch.columns() {
        column.to_data().validate_full().expect("an array that is whole");
    }
    batch
}
