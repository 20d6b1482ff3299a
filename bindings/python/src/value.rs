//! Objects of Python that only have values: their fields are attributes, and they have an equality and a text.

use std::convert::Infallible;

use flv::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Longest `bytes` that are shown in the text of an object.
const SHOWN_BYTES_MAX: usize = 16;

/// Bytes that become an object when they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Bytes);

impl Payload {
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl<'py> IntoPyObject<'py> for Payload {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// Shows an object as `Name(field=value, ...)`, with the length of longer bytes.
pub(crate) fn repr(object: &Bound<'_, PyAny>, fields: &[&str]) -> PyResult<String> {
    let mut parts = Vec::new();
    for field in fields {
        let value = object.getattr(*field)?;
        let shown = match value.cast::<PyBytes>() {
            Ok(bytes) if bytes.as_bytes().len() > SHOWN_BYTES_MAX => {
                format!("<{} bytes>", bytes.as_bytes().len())
            }
            _ => value.repr()?.to_string_lossy().into_owned(),
        };
        parts.push(format!("{field}={shown}"));
    }
    let name: Bound<'_, PyString> = object.get_type().name()?;
    Ok(format!("{name}({})", parts.join(", ")))
}

/// Declares a class whose instances are values. Fields that Python does not see, and methods, may follow.
macro_rules! value {
    (
        $(#[$doc:meta])*
        $module:literal $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* }
        hidden { $($hidden:ident: $hidden_type:ty,)* }
        $($methods:tt)*
    ) => {
        $(#[$doc])*
        #[pyo3::pyclass(frozen, eq, module = $module)]
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $name {
            $($(#[$about])* #[pyo3(get)] pub(crate) $field: $type,)*
            $(pub(crate) $hidden: $hidden_type,)*
        }

        #[pyo3::pymethods]
        impl $name {
            fn __repr__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<String> {
                crate::value::repr(slf.as_any(), &[$(stringify!($field),)*])
            }

            $($methods)*
        }
    };
    (
        $(#[$doc:meta])*
        $module:literal $name:ident { $($fields:tt)* }
        $($methods:tt)*
    ) => {
        value! {
            $(#[$doc])*
            $module $name { $($fields)* }
            hidden {}
            $($methods)*
        }
    };
}
