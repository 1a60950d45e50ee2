"""Verilog designs, judged by simulation against a reference design."""
