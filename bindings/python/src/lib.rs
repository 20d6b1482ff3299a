//! The parsers of FLV, MPEG-TS, RTP and SDP as a module of Python. The package in `package/` names its parts; the
//! types of all functions are in its `.pyi` files.
//!
//! Values are copied into objects of Python when they are read. Parsers of whole files run without the interpreter's
//! lock.

#[macro_use]
mod value;
mod config;
mod flv_file;
mod rtcp;
mod rtp_packet;
mod session;
mod transport_stream;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pyo3::create_exception!(millstream, Error, PyValueError, "Bytes or text could not be read.");

/// Makes the error class of a module, and a function that gives it the words of a crate.
macro_rules! error {
    ($module:expr, $base:ty) => {
        pyo3::create_exception!($module, Error, $base, "Bytes or text could not be read.");

        /// Gives the exception the words of the crate.
        pub(crate) fn error(error: impl std::fmt::Display) -> pyo3::PyErr {
            Error::new_err(error.to_string())
        }
    };
}
pub(crate) use error;

/// The compiled part of the package.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add_class::<config::Config>()?;
    module.add_function(wrap_pyfunction!(config::nal_units, module)?)?;
    for (name, fill) in [
        ("flv", flv_file::fill as fn(&Bound<'_, PyModule>) -> PyResult<()>),
        ("mpegts", transport_stream::fill),
        ("rtp", rtp_packet::fill),
        ("sdp", session::fill),
    ] {
        let part = PyModule::new(py, name)?;
        fill(&part)?;
        module.add_submodule(&part)?;
    }
    Ok(())
}
