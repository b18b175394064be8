//! The messages of OTLP for traces, with the fields that are used. Their numbers are those of the standard,
//! which never change.

use prost::{Enumeration, Message, Oneof};

/// What is posted.
#[derive(Clone, PartialEq, Message)]
pub struct TracesRequest {
    /// Spans by process.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Spans of one process.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<ProcessResource>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessResource {
    /// Names and texts.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<Attribute>,
}

/// Spans of one library.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The library.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<SpanScope>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// The library that made spans.
#[derive(Clone, PartialEq, Message)]
pub struct SpanScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A span that has ended.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The header `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// 8 bytes, or none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Its name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// What it stands for.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Names and values.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<Attribute>,
    /// Other spans that had part in it.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<SpanLink>,
    /// Links above the bound.
    #[prost(uint32, tag = "14")]
    pub dropped_links_count: u32,
    /// Whether it failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
    /// Those of `traceparent`, and what is known of the parent.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// What a span stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not known.
    Unspecified = 0,
    /// A request that is answered.
    Server = 2,
    /// Messages that are written.
    Producer = 4,
    /// Messages that are read.
    Consumer = 5,
}

/// A link to another span.
#[derive(Clone, PartialEq, Message)]
pub struct SpanLink {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// Its `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// As of [`Span`].
    #[prost(fixed32, tag = "6")]
    pub flags: u32,
}

/// Whether a span failed.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SpanStatus {
    /// See [`STATUS_ERROR`].
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// The code of a failure.
pub const STATUS_ERROR: i32 = 2;

/// A name and a value.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AttributeValue>,
}

/// A value.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeValue {
    /// It, by its type.
    #[prost(oneof = "TypedValue", tags = "1, 3, 4")]
    pub value: Option<TypedValue>,
}

/// A value of one type.
#[derive(Clone, PartialEq, Oneof)]
pub enum TypedValue {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Integer(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Number(f64),
}

impl Attribute {
    /// An attribute.
    pub fn new(key: &str, value: TypedValue) -> Self {
        Self { key: key.into(), value: Some(AttributeValue { value: Some(value) }) }
    }
}

/// What a collector answers.
#[derive(Clone, PartialEq, Message)]
pub struct TracesResponse {
    /// What it did not take.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector did not take.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// How many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
