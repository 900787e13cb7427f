//! What stands before the cells of an entry: whose they are.

use super::compression::Compression;
use super::wire::{Field, Take, bad, fields};

#[derive(Default)]
pub struct Key {
    pub region: Vec<u8>,
    pub table: Vec<u8>,
    pub sequence: i64,
    pub write_time: i64,
    pub nonce_group: i64,
    pub nonce: i64,
    pub cells: u32,
}

impl Key {
    /// In a compressed file the names are read in the order in which the writer put them into its dictionaries, which is not that of the
    /// fields' numbers: region, table, then the families of the scopes.
    pub fn read(message: &[u8], compression: Option<&mut Compression>) -> Take<Self> {
        let mut key = Self::default();
        let (mut region, mut table, mut scopes) = (&b""[..], &b""[..], Vec::new());
        fields(message, |number, field| {
            match (number, field) {
                (1, Field::Bytes(name)) => region = name,
                (2, Field::Bytes(name)) => table = name,
                (3, Field::Number(value)) => key.sequence = value.cast_signed(),
                (4, Field::Number(value)) => key.write_time = value.cast_signed(),
                (6, Field::Bytes(scope)) => scopes.push(scope),
                (7, Field::Number(count)) => match u32::try_from(count) {
                    Ok(count) => key.cells = count,
                    Err(_) => return bad(format!("an entry of {count} cells")),
                },
                (9, Field::Number(value)) => key.nonce_group = value.cast_signed(),
                (10, Field::Number(value)) => key.nonce = value.cast_signed(),
                _ => {}
            }
            Ok(())
        })?;
        let Some(compression) = compression else {
            (key.region, key.table) = (region.to_vec(), table.to_vec());
            return Ok(key);
        };
        key.region = compression.region(region)?;
        key.table = compression.table(table)?;
        for scope in scopes {
            fields(scope, |number, field| match (number, field) {
                (1, Field::Bytes(name)) => compression.scope(name),
                _ => Ok(()),
            })?;
        }
        Ok(key)
    }
}
