"""Tests that kill, fill and damage."""
