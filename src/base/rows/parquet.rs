//! Rows as Parquet: a column each, every cell optional, Zstandard.

use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde::Serialize;
use serde_json::Value;

use super::{Column, Kind};
use crate::base::output::ResultFile;

/// Rows of a group.
const GROUP_ROWS: usize = 1 << 16;

/// A Parquet file that is being written.
pub(super) struct ParquetRows {
    writer: SerializedFileWriter<ResultFile>,
    columns: &'static [Column],
    /// The cells of the group, by column.
    cells: Vec<Vec<Value>>,
}

impl std::fmt::Debug for ParquetRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetRows").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl ParquetRows {
    pub(super) fn new(file: ResultFile, columns: &'static [Column]) -> io::Result<Self> {
        let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
        Ok(Self { writer, columns, cells: vec![Vec::new(); columns.len()] })
    }

    pub(super) fn write(&mut self, row: &impl Serialize) -> io::Result<()> {
        let mut row = serde_json::to_value(row)?;
        for (cells, column) in self.cells.iter_mut().zip(self.columns) {
            cells.push(row[column.name].take());
        }
        if self.cells[0].len() == GROUP_ROWS {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group()?;
        for (cells, column) in self.cells.iter_mut().zip(self.columns) {
            let mut writer = group.next_column()?.expect("the schema has as many");
            match column.kind {
                Kind::Integer => write_cells::<Int64Type>(&mut writer, cells, Value::as_i64),
                Kind::Float => write_cells::<DoubleType>(&mut writer, cells, Value::as_f64),
                Kind::Boolean => write_cells::<BoolType>(&mut writer, cells, Value::as_bool),
                Kind::Text => {
                    let text = |cell: &Value| cell.as_str().map(ByteArray::from);
                    write_cells::<ByteArrayType>(&mut writer, cells, text)
                }
            }?;
            writer.close()?;
            cells.clear();
        }
        group.close()?;
        Ok(())
    }

    pub(super) fn into_file(mut self) -> io::Result<ResultFile> {
        if !self.cells[0].is_empty() {
            self.write_group()?;
        }
        Ok(self.writer.into_inner()?)
    }
}

/// A column in the schema.
fn field(column: &Column) -> Result<Arc<Type>, parquet::errors::ParquetError> {
    let (physical, converted) = match column.kind {
        Kind::Integer => (Physical::INT64, ConvertedType::NONE),
        Kind::Float => (Physical::DOUBLE, ConvertedType::NONE),
        Kind::Boolean => (Physical::BOOLEAN, ConvertedType::NONE),
        Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    let field = Type::primitive_type_builder(column.name, physical)
        .with_converted_type(converted)
        .with_repetition(Repetition::OPTIONAL)
        .build()?;
    Ok(Arc::new(field))
}

/// Writes the cells that are known, and for each whether it is.
fn write_cells<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    cells: &[Value],
    known: impl Fn(&Value) -> Option<T::T>,
) -> io::Result<()> {
    let cells: Vec<Option<T::T>> = cells.iter().map(known).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}
