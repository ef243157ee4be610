"""CustomResourceDefinitions, JSON Schemas and the field reference, all generated from the types of this package."""
