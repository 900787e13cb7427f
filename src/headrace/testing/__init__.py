"""The public conformance kit: a plug-in subclasses the suite of its kind in its own tests and gets every test by existing."""
