"""The proof that a schedule computes its graph: what every slot holds, found anew from the graph and the cuts."""
