"""Decisions without effects: which checkpoint is complete, which event may pass, which watermark holds."""
